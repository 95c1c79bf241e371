"""Names by content: of results and of checkpoints."""

from pathlib import Path

from dsocr_core.reading.fingerprints import checkpoint_fingerprint, result_key


def test_keys_depend_on_every_fact_and_not_on_their_order() -> None:
    facts = {"image": "a", "preset": "small", "max_new_tokens": None}
    assert result_key(facts) == result_key(dict(reversed(facts.items())))
    for name, other in (("image", "b"), ("preset", "base"), ("max_new_tokens", 5)):
        assert result_key(facts | {name: other}) != result_key(facts)


def test_the_published_code_beside_the_weights_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    code = tmp_path / "modeling.py"
    code.write_text("NGRAM_SIZE = 20")
    before = checkpoint_fingerprint(str(tmp_path))
    code.write_text("NGRAM_SIZE = 2")
    assert checkpoint_fingerprint(str(tmp_path)) != before

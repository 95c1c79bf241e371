"""The result store: found again whole, or not at all."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.errors import DsocrError
from dsocr_core.outputs.fingerprints import (
    RecordedResult,
    ResultStore,
    checkpoint_fingerprint,
    result_key,
)
from tests.support.results import make_result

CREATED = "2026-11-21T10:00:00+00:00"


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    recorded = RecordedResult(make_result(text="ünï <|ref|>text<|/ref|> 🙂"), CREATED)
    store.save("key", recorded)
    assert store.find("key") == recorded
    assert store.find("other") is None
    assert [file.name for file in (tmp_path / "results").iterdir()] == ["key.json"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "result": {}}', "null"]
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "key.json").write_text(content)
    assert ResultStore(tmp_path).find("key") is None


def test_a_result_of_another_format_is_not_read(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    file = store.save("key", RecordedResult(make_result(), CREATED))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    assert store.find("key") is None


def test_a_failed_write_leaves_the_old_result_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path)
    before = RecordedResult(make_result(text="before"), CREATED)
    store.save("key", before)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DsocrError, match="No space left"):
        store.save("key", replace(before, result=make_result(text="after")))
    assert store.find("key") == before
    assert len(list(tmp_path.iterdir())) == 1


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

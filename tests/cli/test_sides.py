"""Backends on the command line: their settings follow them."""

import json

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import parse
from dsocr_core.cli.options import choice_of, joined_sides


def test_settings_go_into_the_backend_before_them() -> None:
    given = (
        "compare --preset tiny page.png --a eager --a.dtype float32 --b=endpoint:http://h/v1 "
        "--b.flavour vllm --b.body.vllm_xargs.ngram_size=30 --b fast --b.attention sdpa"
    )
    words = joined_sides(given.split())
    assert words[:4] == ["compare", "--preset", "tiny", "page.png"]
    assert [word.partition("=")[0] for word in words[4:]] == ["--a", "--b", "--b"]
    assert [json.loads(word.partition("=")[2]) for word in words[4:]] == [
        {"spec": "eager", "dtype": "float32"},
        {"spec": "endpoint:http://h/v1", "flavour": "vllm", "body.vllm_xargs.ngram_size": 30},
        {"spec": "fast", "attention": "sdpa"},
    ]
    _, chosen = parse(given.split())
    assert choice_of(chosen.b[1]) == {"spec": "fast", "attention": "sdpa"}
    for others in (["trace", "p.png", "--a", "fast", "--b", "vendor"], ["compare", "--", "--a"]):
        assert joined_sides(others) == others


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("compare p.png --b.dtype float32 --b eager", "--b.dtype comes before --b"),
        ("compare p.png --a", "--a: expected a value"),
        ("run p.png --backend.dtype float32", "comes before --backend"),
    ],
)
def test_settings_without_their_backend_are_refused(given: str, says: str) -> None:
    with pytest.raises(DsocrError, match=says):
        joined_sides(given.split())
    with pytest.raises(DsocrError, match="not JSON"):
        choice_of("{eager")

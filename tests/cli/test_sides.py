"""Backends on the command line: their settings follow them."""

import json

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import parse
from dsocr_core.cli.sides import choice_of, joined_sides


def test_settings_go_into_the_backend_before_them() -> None:
    given = (
        "compare --preset tiny page.png --a eager --a.dtype float32 --b=endpoint:http://h/v1 "
        "--b.flavour vllm --b.body.vllm_xargs.ngram_size=30 --b fast --b.attention sdpa"
    )
    words = joined_sides(given.split())
    assert words[:4] == ["compare", "--preset", "tiny", "page.png"]
    a, b, c = (json.loads(word.partition("=")[2]) for word in words[4:])
    assert [word.partition("=")[0] for word in words[4:]] == ["--a", "--b", "--b"]
    assert a == {"spec": "eager", "dtype": "float32"}
    assert b == {"spec": "endpoint:http://h/v1", "flavour": "vllm", "body.vllm_xargs.ngram_size": 30}
    assert c == {"spec": "fast", "attention": "sdpa"}


def test_other_commands_keep_options_of_these_names() -> None:
    trace = ["trace", "p.png", "--a", "fast", "--b", "vendor"]
    assert joined_sides(trace) == trace
    assert joined_sides(["compare", "--", "--a"]) == ["compare", "--", "--a"]


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


def test_the_parser_takes_several_backends_as_b() -> None:
    given = ["compare", "p.png", "--a", "eager", "--b", "vendor", "--b", "eager", "--b.dtype", "bfloat16"]
    _, chosen = parse(given)
    assert chosen.a == "eager"
    assert [choice_of(each) for each in chosen.b] == ["vendor", {"spec": "eager", "dtype": "bfloat16"}]


def test_what_a_person_writes_as_json_is_read_or_refused() -> None:
    assert choice_of("eager") == "eager"
    with pytest.raises(DsocrError, match="not JSON"):
        choice_of("{eager")

"""Options: what --help says, without loading anything heavy; backends with their settings behind them."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import build_parser, parse
from dsocr_core.cli.options import Parser, chosen_arguments, take_sides

HEAVY = ("torch", "transformers", "pandas", "duckdb", "pyarrow", "numpy", "PIL", "streamlit")


def parsers(parser: Parser, name: str = "dsocr") -> Iterator[tuple[str, Parser]]:
    """Every parser with the words that lead to it."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from parsers(below, f"{name} {word}")


def test_every_command_and_option_has_a_sentence_and_no_object_of_the_program() -> None:
    for name, parser in parsers(build_parser()):
        assert parser.description and parser.description[0].isupper(), name
        shown = [each for each in parser._actions if each.help is not argparse.SUPPRESS]
        options = [each for each in shown if not isinstance(each, argparse._SubParsersAction)]
        assert [each.option_strings for each in options if len(each.help or "") < 8] == [], name
        shown_options = re.findall(r"(?m)^  (?:-\w, )?--(?!help)", parser.format_help())
        assert len(shown_options) <= 12, f"{name}: its help does not fit on a screen"
        parser.whole = True
        text = parser.format_help()
        parser.whole = False
        assert not re.search("0x[0-9a-f]{6}|<function|<lambda|<class|type: ", text), name
        assert len(text.split("\n\n")[0].splitlines()) < 5, f"{name}: its first lines have options"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from dsocr_core.cli.main import build_parser; build_parser(); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_settings_go_into_the_backend_before_them() -> None:
    words = (
        "compare --preset tiny page.png --a eager --a.dtype float32 --b=endpoint:http://h/v1 "
        "--b.flavour vllm --b.body.vllm_xargs.ngram_size=30 --b vendor --b fast --b.attention sdpa"
    )
    _, chosen = parse(words.split())
    assert (chosen.preset, chosen.a) == ("tiny", {"spec": "eager", "dtype": "float32"})
    served = {"spec": "endpoint:http://h/v1", "flavour": "vllm", "body.vllm_xargs.ngram_size": 30}
    assert chosen.b == [served, "vendor", {"spec": "fast", "attention": "sdpa"}]
    for others in (["trace", "p.png", "--a", "fast", "--b", "vendor"], ["compare", "--", "--a"]):
        assert take_sides(others) == (others, {})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("compare p.png --b.dtype float32 --b eager", "--b.dtype comes before --b"),
        ("compare p.png --a", "--a: expected a value"),
        ("run p.png --backend.dtype float32", "comes before --backend"),
    ],
)
def test_settings_without_their_backend_are_refused(words: str, says: str) -> None:
    with pytest.raises(DsocrError, match=says):
        take_sides(words.split())


def test_numbers_of_options_are_plain_ones() -> None:
    """The parser's are of subclasses, which no record takes back from JSON."""
    command, chosen = parse(["bench", "--tokens", "5"])
    assert type(chosen_arguments(command, chosen)["tokens"]) is int

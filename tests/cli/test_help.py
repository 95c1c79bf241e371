"""What --help says, and that it says so without loading anything heavy."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import build_parser
from dsocr_core.cli.options import Parser

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

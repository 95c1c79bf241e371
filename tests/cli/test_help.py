"""What --help says, and that it says so without loading anything heavy."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
from jsonargparse import ArgumentParser

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cli.main import COMMANDS, build_parser, main
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings

HEAVY = ("torch", "transformers", "pandas", "duckdb", "pyarrow", "numpy", "PIL", "streamlit")


def parsers(parser: ArgumentParser, name: str = "dsocr") -> Iterator[tuple[str, ArgumentParser]]:
    """Every parser with the words that lead to it."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from parsers(below, f"{name} {word}")


PARSERS = dict(parsers(build_parser()))


def test_every_subcommand_is_walked() -> None:
    assert {f"dsocr {name}" for name in COMMANDS} < set(PARSERS)
    assert {"dsocr history sql", "dsocr profile"} < set(PARSERS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_parser_of_one_command_takes_what_it_takes_among_all(command: str) -> None:
    alone = dict(parsers(build_parser(command)))
    among_all = {name for name in PARSERS if f"{name} ".startswith(f"dsocr {command} ")}
    assert set(alone) == {"dsocr", *among_all}
    for name in among_all:
        assert alone[name].format_help() == PARSERS[name].format_help()


@pytest.mark.parametrize("name", PARSERS)
def test_no_help_shows_an_object_of_the_program(name: str) -> None:
    assert not re.search("0x[0-9a-f]{6}|<function|<lambda|<class", PARSERS[name].format_help())


@pytest.mark.parametrize("word", ["bogus", "--debug", None])
def test_what_is_no_command_gets_the_parser_of_all(word: str | None) -> None:
    assert set(dict(parsers(build_parser(word)))) == set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_every_command_has_a_description_and_every_option_a_sentence(name: str) -> None:
    parser = PARSERS[name]
    assert parser.description and parser.description[0].isupper()
    shown = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    # The name of a subcommand is explained by the list of them.
    shown = [action for action in shown if not isinstance(action, argparse._SubParsersAction)]
    without = [action.option_strings or action.dest for action in shown if len(action.help or "") < 8]
    assert without == []


def settings_of(kind: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting that is no group of others: the option's name, and the docstring that explains it."""
    for field in fields(kind):
        if isinstance(field.default_factory, type) and is_dataclass(field.default_factory):
            yield from settings_of(field.default_factory, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, " ".join((kind.__doc__ or "").split())


def test_every_setting_is_an_option_with_the_words_of_its_docstring() -> None:
    options = {action.dest: action for action in PARSERS["dsocr run"]._actions}
    found = dict(settings_of(Settings))
    assert {"checkpoint", "infer.max_new_tokens", "vendor.timeout_s"} < set(found)
    for name, docstring in found.items():
        if name in SIDES:
            continue  # `--backend` here, `--a` and `--b` of compare: what is named has settings of its own
        words = " ".join((options[name].help or "").split())
        assert f"{name.rpartition('.')[2]}: {words}" in docstring


def test_the_list_of_subcommands_says_what_each_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "run Read pages with our engine" in shown and "doctor Say what is on this machine" in shown


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from dsocr_core.cli.main import build_parser; build_parser(); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

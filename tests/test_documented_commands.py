"""The documents and the parsers name the same: every command of a document parses, every option is in one."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.cli.main import COMMANDS, Group
from tests.support.documented_commands import commands_of, documents, dsocr_parser, problem


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "settings.yaml").write_text("preset: small\n")
    return tmp_path / "settings.yaml"


def test_every_documented_command_is_one_that_the_parsers_take(config: Path) -> None:
    commands = [command for file in documents() for command in commands_of(file)]
    assert len(commands) > 20
    found = [(command, problem(command, config)) for command in commands]
    wrong = [f"{command}\n    {words}" for command, words in found if words]
    assert not wrong, "\n" + "\n".join(wrong)


def options(*command: str) -> Iterator[str]:
    """Every option of a command, as its help spells it."""
    parser = dsocr_parser(*command)
    for word in command:
        (below,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = below.choices[word]
    for action in parser._actions:
        yield from (option for option in action.option_strings if not option.endswith("+"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_stands_in_a_document(command: str) -> None:
    """Groups of settings are named by their members; a name counts where it stands as a whole."""
    words = " ".join(file.read_text(encoding="utf-8") for file in documents())
    named = set(re.findall(r"--[a-z](?:[\w.-]*[a-z])?", words))
    found = COMMANDS[command]
    below = [(command, name) for name in found.commands] if isinstance(found, Group) else [(command,)]
    groups = {"--infer", "--vendor", "--tolerance", "-h"}
    missing = {option for words in below for option in options(*words)} - named - groups
    assert missing == set()

"""The documents and the parsers name the same: every command of a document parses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documented_commands import commands_of, documents, problem


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

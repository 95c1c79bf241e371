"""Every command in README, CONTRIBUTING and docs is one that the parsers take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documented_commands import Documented, commands_of, documents, problem
from tests.support.paths import ROOT


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


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("dsocr fly", "no subcommand 'fly'"),
        ("dsocr run", "images"),
        ("dsocr compare page.png --colour red", "--colour"),
        ("python -m dsocr_core bench --tokens many", "tokens"),
        ("python -m dsocr_core.measure.soak --pages 9", "dsocr_core.measure.soak is no command"),
        ("dsocr measure", "ends before its subcommand"),
        ("dsocr measure decode-step --config CONFIG --grid 2 2", "--grid"),
        ('PAGE="python -m dsocr_core run page.png --nvtx"', "--nvtx"),
        ("ncu --nvtx dsocr run --such", "--such"),
        ("dsocr run page.png --json > a.json && dsocr fly", None),
        ("dsocr run page.png [--batch N] --config my.yaml   # a comment's words", None),
        ("dsocr run page.png ... --nvtx-only", None),
        ("dsocr flops report --config data/mini --width wide", "width"),
        ("dsocr flops verify --fast", "--fast"),
        ("python -m data.history_seed.make --to DIR", None),
        ("python -m data.history_seed.make --from DIR", "--from"),
        ("python -m data.nothing", "no module data.nothing"),
        ("python -m tests.perf.history --columns 3", "--columns"),
        ("make coffee", "no target 'coffee'"),
        ("make test", None),
        ("cat page.png", None),
    ],
)
def test_what_is_wrong_with_a_command_is_said(text: str, cause: str | None, config: Path) -> None:
    found = problem(Documented(ROOT / "README.md", 1, text, whole=True), config)
    assert found is None if cause is None else cause in str(found)


def test_commands_are_found_in_blocks_and_in_sentences(tmp_path: Path, config: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(
        "Text with `dsocr measure NAME` and `dsocr history lust`.\n\n"
        "    dsocr run page.png \\\n        --preset small\n\n"
        "```sh\ndsocr compare a.png\n```\n"
    )
    found = list(commands_of(file))
    assert [(each.line, each.text, each.whole) for each in found] == [
        (1, "dsocr measure NAME", False),
        (1, "dsocr history lust", False),
        (3, "dsocr run page.png --preset small", True),
        (7, "dsocr compare a.png", True),
    ]
    problems = [problem(each, config) for each in found]
    assert [words is None for words in problems] == [True, False, True, True]

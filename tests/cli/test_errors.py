"""No traceback: every error is one line, what nobody foresaw has a number and its rest in the log."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dsocr_core.base import errors
from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.cli.main import main
from tests.support.made_up_runs import timing, write_run

Said = Callable[..., str]


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "log" / "errors.log"
    monkeypatch.setattr(errors, "LOG_FILE", file)
    return file


@pytest.fixture
def history(tmp_path: Path) -> Path:
    for name in ("good", "bad"):
        write_run(tmp_path / "h", name, [timing("p", "sam", 1.5)])
    table = tmp_path / "h" / "runs" / "bad" / "timings.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    return tmp_path / "h"


def test_damage_is_named_by_whatever_asks_and_goes_into_the_trash(history: Path, said: Said) -> None:
    where, to = ("--history", history), history / "x.zip"
    assert "run bad is damaged: timings.parquet" in said("compare", "bad", *where, code=BAD_USAGE)
    exported = said("history", "export", "bad", "--to", to, *where, code=BAD_USAGE)
    assert "run bad is damaged: timings.parquet" in exported
    found = said("history", "check", *where, code=FAILED)
    assert "damaged runs/bad: timings.parquet" in found and "runs/good" not in found
    said("history", "trash", "bad", *where)
    assert said("history", "trash", "--empty", *where) == "1 deleted"
    assert not (history / "runs" / "bad").exists()


@pytest.mark.parametrize(
    "words, problem",
    [
        (("export", "good", "--to", "x" * 300), "name too long"),
        (("export", "good", "--to", "/proc/nobody/x.zip"), "could not be written"),
        (("export", "good", "--to", "a\0b"), "error: a path has a zero byte"),
        (("sql", "SELECT '\udcff'"), "SQL: "),
    ],
)
def test_what_cannot_be_is_one_line(
    history: Path, said: Said, words: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(history.parent)
    assert problem in said("history", *words, "--history", history, code=BAD_USAGE)


def test_what_nobody_foresaw_is_one_line_and_the_log_has_the_rest(
    said: Said, monkeypatch: pytest.MonkeyPatch, log: Path
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("first\nsecond \x1b[31m")

    monkeypatch.setattr("dsocr_core.cli.doctor.examine", fail)
    text = said("doctor", code=BAD_USAGE)
    [number] = re.findall(
        r"error: unforeseen RuntimeError, number ([0-9a-f]{8}): errors.log has the rest", text
    )
    assert text.endswith("): first second \\x1b[31m")
    written = log.read_text()
    assert number in written and "in fail" in written and "\x1b" not in written


def test_names_and_texts_cannot_steer_the_terminal(history: Path, said: Said) -> None:
    steer = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\udcff"
    for arguments in (
        ["doctor", f"--{steer}"],
        ["run", history / f"{steer}.png"],
        ["compare", f"{steer}", "--history", history],
    ):
        text = said(*arguments, code=BAD_USAGE)
        assert not set("\x1b\x07\x9b\u202e\udcff") & set(text) and "\\x1b" in text
    select = "SELECT chr(27) || '[2J' AS hidden"
    assert "\\x1b[2J" in said("history", "sql", select, "--history", history)
    shown = said("history", "sql", select, "--history", history, "--json")
    assert shown.startswith('{"rows": [{"hidden": "\\u001b[2J"}]} left out')


def test_a_terminal_without_unicode_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(shown, "latin-1", write_through=True))
    assert main(["run", "no such \u4e2d\u2026 file.png"]) == 2
    with contextlib.suppress(SystemExit):
        main(["run", "--help"])
    assert b"no such \\u4e2d" in shown.getvalue() and b"Traceback" not in shown.getvalue()


@pytest.mark.parametrize("command", [["history", "list", "--json"], ["doctor"]])
def test_an_output_without_room_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(command) == BAD_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no room: no space left on device" in line

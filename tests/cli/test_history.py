"""The commands of the history, as a person or a program calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main, parse
from dsocr_core.cli.options import call as call_command
from tests.support.made_up_runs import timing, write_run


def call(*arguments: str, console: Console | None = None) -> int:
    command, options = parse(["history", *arguments])
    return call_command(command, options, console=console or Console(width=200), typed="")


@pytest.fixture(autouse=True)
def no_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs that come with the project are others in these tests: none."""
    monkeypatch.setattr("dsocr_core.runs.history.SEED_LOCATION", tmp_path / "examples")
    return tmp_path / "examples"


@pytest.fixture
def history(tmp_path: Path) -> str:
    for name in ("first", "second"):
        write_run(tmp_path / "h", name, [timing("p", "sam", 1.5)], created=f"2026-01-0{len(name) - 4}")
    return str(tmp_path / "h")


def test_runs_are_listed(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--history", history) == 0
    assert "second" in capsys.readouterr().out
    call("list", "--history", history, "--json")
    document = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in document["runs"]] == ["second", "first"]
    assert document["runs"][0]["created"] == "2026-01-02T00:00:00.000" and document["runs"][0]["gpu"] is None


def test_runs_go_into_the_trash_and_come_back(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    call("trash", "first", "second", "--history", history)
    call("trash", "second", "--undo", "--history", history)
    call("trash", "--empty", "--history", history, "--json")
    call("list", "--history", history, "--json")
    *_, emptied, listed = capsys.readouterr().out.splitlines()
    assert json.loads(emptied) == {"deleted": 1}
    assert [run["run_id"] for run in json.loads(listed)["runs"]] == ["second"]
    for wrong in (["--empty", "second"], [], ["--empty", "--undo"]):
        with pytest.raises(DsocrError):
            call("trash", *wrong, "--history", history)


def test_a_check_names_what_stopped_writers_left(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(history) / "unfinished" / "broken.1").mkdir(parents=True)
    call("check", "--history", history, "--json")
    [left] = json.loads(capsys.readouterr().out)["leftovers"]
    assert left["path"].endswith("broken.1")
    call("check", "--history", history)
    assert "doctor --clear deletes it" in capsys.readouterr().out


def test_an_exported_run_imports_once(
    history: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("export", "first", "--history", history, "--to", str(tmp_path / "x.zip"), "--json")
    for _ in range(2):
        call("import", str(tmp_path / "x.zip"), "--history", str(tmp_path / "other"), "--json")
    exported, imported, again = map(json.loads, capsys.readouterr().out.splitlines())
    assert exported["runs"] == 1
    assert [run["run_id"] for run in imported["imported"]] == ["first"]
    assert again["imported"] == [] and [run["run_id"] for run in again["known"]] == ["first"]


def test_a_relative_history_lies_in_the_project_as_for_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "own", "only", [timing("p", "sam", 1.5)])
    monkeypatch.setattr("dsocr_core.settings.PROJECT_ROOT", tmp_path)
    call("list", "--history", "own", "--json")
    assert [found["run_id"] for found in json.loads(capsys.readouterr().out)["runs"]] == ["only"]


def test_the_runs_that_come_with_the_project_are_listed_beside_those_of_any_location(
    history: str, no_examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(no_examples, "example", [timing("p", "sam", 1.5)], created="2026-01-01T00:00:00")
    for where in (history, str(no_examples)):
        call("list", "--history", where, "--json")
    both, alone = (json.loads(line)["runs"] for line in capsys.readouterr().out.splitlines())
    assert {run["run_id"] for run in both} == {"first", "second", "example"}
    assert [run["run_id"] for run in alone] == ["example"]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match=r"nowhere: no such file or folder"):
        call("import", str(tmp_path / "nowhere"), "--history", str(tmp_path / "h"))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_import_that_takes_nothing_fails(
    tmp_path: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("not a run")
    assert call("import", str(tmp_path / "notes.txt"), "--history", str(tmp_path / "h"), *options) == 1
    assert "not a file of a format" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--time-limit-s=0", "--time-limit-s=-1", "--memory-limit-mib=-1"])
def test_limits_of_sql_are_above_zero(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "sql", "SELECT 1", "--history", str(tmp_path), option]) == 2
    assert capsys.readouterr().out.startswith(f"error: {option.partition('=')[0]} is ")


def test_an_error_of_a_statement_is_no_line_of_its_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "sql", "--csv", "--history", str(tmp_path), "SELECT nothing"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: SQL: ")

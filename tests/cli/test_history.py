"""The commands of the history, as a person or a program calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.cli.main import main
from tests.support.made_up_runs import timing, write_run

Document = Callable[..., Any]
Said = Callable[..., str]


@pytest.fixture(autouse=True)
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs that come with the project are others in these tests: none."""
    monkeypatch.setattr("dsocr_core.runs.history.SEED_LOCATION", tmp_path / "examples")
    return tmp_path / "examples"


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, str]:
    for name in ("first", "second"):
        write_run(tmp_path / "h", name, [timing("p", "sam", 1.5)], created=f"2026-01-0{len(name) - 4}")
    return "--history", str(tmp_path / "h")


def listed(document: Document, *where: object) -> list[str]:
    return [run["run_id"] for run in document("history", "list", *where)["runs"]]


def test_runs_are_listed_with_the_examples(
    where: tuple[str, str], examples: Path, document: Document, said: Said
) -> None:
    assert "second" in said("history", "list", *where)
    newest, _ = document("history", "list", *where)["runs"]
    assert (newest["created"], newest["gpu"]) == ("2026-01-02T00:00:00.000", None)
    write_run(examples, "example", [timing("p", "sam", 1.5)], created="2026-01-01T00:00:00")
    assert set(listed(document, *where)) == {"first", "second", "example"}
    assert listed(document, "--history", examples) == ["example"]


def test_runs_go_into_the_trash_and_come_back(where: tuple[str, str], document: Document, said: Said) -> None:
    said("history", "trash", "first", "second", *where)
    said("history", "trash", "second", "--undo", *where)
    assert document("history", "trash", "--empty", *where) == {"deleted": 1}
    assert listed(document, *where) == ["second"]
    for wrong in (["--empty", "second"], [], ["--empty", "--undo"]):
        said("history", "trash", *wrong, *where, code=BAD_USAGE)


def test_an_exported_run_imports_once(
    where: tuple[str, str], tmp_path: Path, document: Document, said: Said
) -> None:
    assert document("history", "export", "first", *where, "--to", tmp_path / "x.zip")["runs"] == 1
    words = ("history", "import", tmp_path / "x.zip", "--history", tmp_path / "other")
    imported, again = document(*words), document(*words)
    assert [run["run_id"] for run in imported["imported"]] == ["first"]
    assert again["imported"] == [] and [run["run_id"] for run in again["known"]] == ["first"]


def test_an_import_that_takes_nothing_fails(tmp_path: Path, said: Said) -> None:
    (tmp_path / "notes.txt").write_text("not a run")
    for name, text, code in (("notes.txt", "looks like nothing", FAILED), ("none", "no such", BAD_USAGE)):
        words = ("history", "import", tmp_path / name, "--history", tmp_path / "h")
        assert text in said(*words, code=code)


def test_limits_of_sql_are_above_zero_and_an_error_is_no_line_of_its_answer(
    tmp_path: Path, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--time-limit-s=0", "--time-limit-s=-1", "--memory-limit-mib=-1"):
        refused = said("history", "sql", "SELECT 1", "--history", tmp_path, option, code=BAD_USAGE)
        assert refused.startswith(f"error: {option.partition('=')[0]} is ")
    assert main(["history", "sql", "--json", "--history", str(tmp_path), "SELECT nothing"]) == BAD_USAGE
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: SQL: ")

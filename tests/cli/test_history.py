"""The commands of the history, as a person or a program calls them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from dsocr_core.cli.history import add_history_commands, history_parser, run_history
from dsocr_core.errors import DsocrError
from tests.support.made_up_runs import timing, write_run


def call(*arguments: str, console: Console | None = None) -> int:
    parser = history_parser()
    add_history_commands(parser)
    return run_history(parser.parse_args(list(arguments)), console or Console(width=200))


@pytest.fixture
def place(tmp_path: Path) -> str:
    for name in ("first", "second"):
        write_run(tmp_path / "h", name, [timing("p", "sam", 1.5)], created=f"2026-01-0{len(name) - 4}")
    return str(tmp_path / "h")


def test_runs_are_listed(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--location", place) == 0
    assert "second" in capsys.readouterr().out
    call("list", "--location", place, "--json")
    document = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in document["runs"]] == ["second", "first"]
    assert document["runs"][0]["created"] == "2026-01-02T00:00:00.000" and document["runs"][0]["gpu"] is None


def test_a_list_keeps_to_one_line_a_run(tmp_path: Path) -> None:
    name = f"llm-perf-opt-{'0' * 24}"  # as long as names are
    write_run(tmp_path / "h", name, [timing("p", "sam", 1.5)], preset="gundam", gpu="NVIDIA GeForce RTX 5090")
    for width, terminal, words in ((80, True, "gundam"), (160, True, "RTX 5090"), (80, False, "RTX 5090")):
        console = Console(width=width, force_terminal=terminal, file=io.StringIO(), color_system=None)
        call("list", "--location", str(tmp_path / "h"), console=console)
        shown = console.file.getvalue()
        (line,) = [line for line in shown.splitlines() if name in line]
        assert words in line and len([line for line in shown.splitlines() if line.strip()]) == 3


def test_sql_answers_and_changes_nothing(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    statement = "SELECT stage, avg(milliseconds) AS ms FROM stage_timings GROUP BY stage"
    call("sql", statement, "--location", place, "--json")
    assert json.loads(capsys.readouterr().out) == {"rows": [{"stage": "sam", "ms": 1.5}]}
    call("sql", statement, "--location", place, "--csv")
    assert capsys.readouterr().out == "stage,ms\nsam,1.5\n"
    with pytest.raises(DsocrError, match="only SELECT"):
        call("sql", "DELETE FROM runs", "--location", place)


def test_runs_go_to_the_trash_come_back_and_are_deleted_on_request(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call("trash", "first", "second", "--location", place)
    call("trash", "second", "--undo", "--location", place)
    call("trash", "--empty", "--location", place, "--json")
    call("list", "--location", place, "--json")
    *_, emptied, listed = capsys.readouterr().out.splitlines()
    assert json.loads(emptied) == {"deleted": 1}
    assert [run["run_id"] for run in json.loads(listed)["runs"]] == ["second"]
    for wrong in (["--empty", "second"], [], ["--empty", "--undo"]):
        with pytest.raises(DsocrError):
            call("trash", *wrong, "--location", place)


def test_folding_and_leftovers(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(place) / "unfinished" / "broken.1").mkdir(parents=True)
    call("compact", "--keep", "1", "--location", place, "--json")
    call("leftovers", "--location", place, "--clear", "--json")
    call("leftovers", "--location", place, "--json")
    packed, cleared, left = map(json.loads, capsys.readouterr().out.splitlines())
    assert packed["packed"] == 1
    assert [item["path"].endswith("broken.1") for item in cleared["leftovers"]] == [True]
    assert left["leftovers"] == []


def test_an_exported_run_is_imported_once(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("export", "first", "--location", place, "--to", str(tmp_path / "x.zip"), "--json")
    for _ in range(2):
        call("import", str(tmp_path / "x.zip"), "--location", str(tmp_path / "other"), "--json")
    exported, imported, again = map(json.loads, capsys.readouterr().out.splitlines())
    assert exported["rows"]["stage_timings"] == 1
    assert [run["run_id"] for run in imported["imported"]] == ["first"]
    assert again["imported"] == [] and [run["run_id"] for run in again["known"]] == ["first"]


def test_the_bench_measures_every_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr_core.measure.history_queries._REPEATS", 2)
    call("bench", "--runs", "10", "--rows", "1000", "--json", "--location", str(tmp_path))
    document = json.loads(capsys.readouterr().out)
    assert [size["runs"] for size in document["sizes"]] == [2, 3, 10]
    assert document["sizes"][-1]["stage_rows"] == pytest.approx(1000, rel=0.1)
    names = {query["name"] for query in document["sizes"][-1]["queries"]}
    assert {"runs", "trend", "pairs", "kernels"} <= names
    assert all(query["p95_ms"] >= query["median_ms"] > 0 for query in document["sizes"][-1]["queries"])
    assert list(tmp_path.iterdir()) == []

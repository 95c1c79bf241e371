"""The measured history: every size, every query, and whether the targets are met."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dsocr_core.cli.main import main
from dsocr_core.console import BAD_USAGE
from dsocr_core.measure.history_report import HistoryReport, Measured, QueryTime


@pytest.mark.usefixtures("quick_spawn")
def test_every_size_and_every_query_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr_core.measure.history_queries._REPEATS", 2)
    arguments = ("measure", "history", "--runs", "10", "--rows", "1000", "--json")
    main([*arguments, "--directory", str(tmp_path)])
    document = json.loads(capsys.readouterr().out)
    assert [size["runs"] for size in document["sizes"]] == [2, 3, 10]
    assert document["sizes"][-1]["stage_rows"] == pytest.approx(1000, rel=0.1)
    names = {query["name"] for query in document["sizes"][-1]["queries"]}
    assert {"runs", "trend", "pairs", "kernels"} <= names
    assert all(query["p95_ms"] >= query["median_ms"] > 0 for query in document["sizes"][-1]["queries"])
    assert list(tmp_path.iterdir()) == []
    assert main([*arguments, "--directory", str(tmp_path / "none")]) == BAD_USAGE
    assert "no such directory" in capsys.readouterr().err


def test_a_missed_target_is_named_in_the_tables() -> None:
    fast = Measured(10, 1000, 1.0, 0.1, 0.01, 50.0, [QueryTime("runs", "history", 10, 5.0, 9.0)])
    slow = replace(fast, queries=[QueryTime("runs", "history", 10, 5.0, 401.0)])
    for size, missed in ((fast, []), (slow, ["runs: 401 ms > 400 ms"])):
        report = HistoryReport(12.0, [size])
        assert report.missed == missed
        console = Console(record=True, width=140, quiet=False)
        with console.capture() as shown:
            report.print(console)
        assert shown.get().splitlines()[-1] == (
            "missed: runs: 401 ms > 400 ms" if missed else "all targets met"
        )

"""Runs > Cluster without a browser: what an output says, as tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.cluster.status import StatusReader
from dsocr_core.runs.store import History
from pages.widgets.runs.cluster_run import cause_rows, worker_rows
from pages.widgets.shared import resources
from pages.widgets.shared.messages import plain
from tests.support.made_up_output import HOSTILE, MadeUpOutput
from tests.support.opened_page import opened, words


@pytest.fixture
def no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with History(tmp_path / "history") as history:
        monkeypatch.setattr(resources, "history", lambda: history)
        yield


def test_the_slowest_worker_stands_first_and_is_named(tmp_path: Path) -> None:
    made = MadeUpOutput(tmp_path)
    made.commit(12)
    reader = StatusReader(made.output)
    reader.read()
    rows = worker_rows(reader.figures).to_dict("records")
    # Three shards of 50 pages in 18 s; the others in 6, 6.3 and 5.7 s.
    assert [row["worker"] for row in rows] == [f"slow {HOSTILE}", "node-1/1", "node-1/0", "node-2/0"]
    assert [row["pages/s"] for row in rows] == pytest.approx([8.33, 23.8, 25.0, 26.3], rel=0.01)
    assert [row["straggler"] for row in rows] == ["straggler", "", "", ""]
    assert rows[1]["decode ms/page"] == pytest.approx(310)  # of those that were read
    assert rows[1]["failed"] == 6
    assert rows[1]["last commit (UTC)"] == "2023-11-14 22:13:26"
    causes = cause_rows(reader.figures.causes).to_dict("records")
    assert causes == [{"cause": "ended by SIGABRT", "pages": 12}, {"cause": HOSTILE, "pages": 12}]


def test_an_output_is_shown_by_its_link(tmp_path: Path, no_history: None) -> None:
    made = MadeUpOutput(tmp_path / "out")
    made.commit(10)
    page = opened("runs", view="Cluster", output=str(tmp_path / "out"))
    assert {metric.label: metric.value for metric in page.metric} == {
        "Read": "480", "Failed": "10", "Quarantined": "10", "Pages/s": "83.5", "Left": "18.0 s",
        "Workers": "4",
    }  # fmt: skip
    assert len(page.dataframe) == 2
    assert plain(HOSTILE).replace("\\", "") in words(page)  # its address is no link


@pytest.mark.parametrize(
    ("output", "said"),
    [("", "writes one; it is read here as it grows"), ("none", "no run over many pages; give its --out")],
)
def test_without_an_output_the_page_says_what_to_do(
    tmp_path: Path, no_history: None, output: str, said: str
) -> None:
    page = opened("runs", view="Cluster", output=output and str(tmp_path / output))
    assert said in words(page)

"""Figures of a run over many pages: no clock of a worker is compared with another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.cluster.status import GONE_AFTER, Figures, read_status
from dsocr_core.runs.sharded import Marker
from tests.support.made_up_output import HOSTILE, MadeUpOutput


def marker(index: int, worker: str, began: float, ended: float, pages: int = 50) -> Marker:
    shard = f"{index:09d}-{0:016x}"
    return Marker(
        file="f", worker_file="t", bytes=1, sha256="", worker_sha256="", shard=shard, read=pages, failed=0,
        quarantined=0, causes={}, worker=worker, began=began, ended=ended,
    )  # fmt: skip


def figures(ahead_s: float, gone_from: int = 10**9, shards: int = 80) -> Figures:
    """Two workers in turn, 25 and 10 pages a second; the second one's clock is ahead."""
    found = Figures()
    for index in range(shards):
        turn, second = divmod(index, 2)
        seconds, shift = (5.0, 1e9 + ahead_s) if second else (2.0, 1e9)
        if not second or index < gone_from:
            began = shift + turn * seconds
            found.add(marker(index, "ab"[second], began, began + seconds))
    return found


@pytest.mark.parametrize("ahead_s", [0.0, 86_400.0, -1e9])
def test_a_clock_that_is_wrong_changes_no_figure(ahead_s: float) -> None:
    found = figures(ahead_s)
    assert found.pages_per_s == pytest.approx(35.0)
    assert [found.workers[name].pages_per_s for name in "ab"] == pytest.approx([25.0, 10.0])
    assert found.stragglers == ["b"]


def test_a_worker_that_has_left_counts_no_more() -> None:
    assert figures(0.0, gone_from=40, shards=60).pages_per_s == pytest.approx(35.0)
    assert figures(0.0, gone_from=40, shards=42 + 2 * GONE_AFTER).pages_per_s == pytest.approx(25.0)
    busy = Figures()  # with two shards at once, then with none
    for index, began in enumerate((0.0, 25.0, 1000.0)):
        busy.add(marker(index, "a", began, began + 50.0))
    assert busy.pages_per_s == pytest.approx(3 * 50 / 125.0)


def test_the_record_of_a_run_has_its_figures(tmp_path: Path) -> None:
    made = MadeUpOutput(tmp_path / "out")
    made.commit(12)
    found = read_status(made.output)
    facts, times = found.facts("out"), {row["stage"]: row for row in found.mean_times("eager")}
    assert (facts["pages"], facts["read"], facts["failed"], facts["quarantined"]) == (600, 576, 12, 12)
    assert (facts["workers"], facts["stragglers"]) == (4, [f"slow {HOSTILE}"])
    assert times["decode"]["milliseconds"] == pytest.approx(310.0)
    assert times["decode"]["aggregate"] == "mean"

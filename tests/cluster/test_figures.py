"""Figures of a run over many pages: no clock of a worker is compared with another's."""

from __future__ import annotations

import pytest

from dsocr_core.cluster.status import GONE_AFTER, Figures, status_line
from dsocr_core.runs.sharded import Marker


def marker(index: int, worker: str, began: float, ended: float, read: int = 50, **more: object) -> Marker:
    given = {"failed": 0, "quarantined": 0, "causes": {}} | more
    return Marker(
        file="f", sha256="", worker_sha256="", shard=f"{index:09d}-{0:016x}",
        worker=worker, began=began, ended=ended, read=read, **given,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ahead_s", "gone_from", "shards", "pages_per_s"),
    [
        (0.0, 80, 80, 35.0), (86_400.0, 80, 80, 35.0), (-1e9, 80, 80, 35.0), (0.0, 40, 60, 35.0),
        (0.0, 40, 42 + 2 * GONE_AFTER, 25.0),
    ],
    ids=["clocks agree", "ahead", "behind", "one pauses", "one has left"],
)  # fmt: skip
def test_a_speed_is_the_sum_of_the_workers_that_take_part(
    ahead_s: float, gone_from: int, shards: int, pages_per_s: float
) -> None:
    """Two workers in turn, 25 and 10 pages a second; the second one's clock is ahead."""
    found = Figures()
    for index in range(shards):
        turn, second = divmod(index, 2)
        began = 1e9 + (ahead_s + turn * 5.0 if second else turn * 2.0)
        if not second or index < gone_from:
            found.add(marker(index, "ab"[second], began, began + (5.0 if second else 2.0)))
    assert found.pages_per_s == pytest.approx(pages_per_s)


def test_the_status_says_what_is_known() -> None:
    found = Figures()
    for index, began in enumerate((0.0, 25.0, 1000.0)):  # two shards at once, then a pause
        found.add(marker(index, "a", began, began + 50.0))
    assert status_line(found) == "150 pages read, 1.2 pages/s"
    found.planned = 400
    causes = {f"cause {number}": 9 - number for number in range(5)}
    found.add(marker(3, "a", 1050.0, 1050.0, 16, failed=30, quarantined=4, causes=causes))
    assert status_line(found) == (
        "166 of 400 pages read, 30 failed, 4 quarantined, 1.6 pages/s, 2 min 05 s left at that speed; "
        "failed: 9 cause 0; 8 cause 1; 7 cause 2; 2 more causes"
    )

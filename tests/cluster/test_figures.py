"""Figures of a run over many pages: no clock of a worker is compared with another's."""

from __future__ import annotations

import pytest

from dsocr_core.cluster.status import GONE_AFTER, Figures, status_line
from dsocr_core.runs.sharded import Marker


def marker(index: int, worker: str, began: float, ended: float, **more: object) -> Marker:
    given = {
        "file": "f", "worker_file": "t", "bytes": 1, "sha256": "", "worker_sha256": "", "read": 50,
        "failed": 0, "quarantined": 0, "causes": {}, "shard": f"{index:09d}-{0:016x}",
    }  # fmt: skip
    return Marker(**given | more, worker=worker, began=began, ended=ended)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("found", "pages_per_s"),
    [
        *((figures(ahead_s), 35.0) for ahead_s in (0.0, 86_400.0, -1e9)),
        (figures(0.0, gone_from=40, shards=60), 35.0),
        (figures(0.0, gone_from=40, shards=42 + 2 * GONE_AFTER), 25.0),
    ],
    ids=["clocks agree", "ahead", "behind", "one pauses", "one has left"],
)
def test_a_speed_is_the_sum_of_the_workers_that_take_part(found: Figures, pages_per_s: float) -> None:
    assert found.pages_per_s == pytest.approx(pages_per_s)


def test_the_status_says_what_is_known() -> None:
    found = Figures()
    for index, began in enumerate((0.0, 25.0, 1000.0)):  # two shards at once, then a pause
        found.add(marker(index, "a", began, began + 50.0))
    assert status_line(found) == "150 pages read, 1.2 pages/s"
    found.planned = 400
    causes = {f"cause {number}": 9 - number for number in range(5)}
    found.add(marker(3, "a", 1050.0, 1050.0, read=16, failed=30, quarantined=4, causes=causes))
    assert status_line(found) == (
        "166 of 400 pages read, 30 failed, 4 quarantined, 1.6 pages/s, 2 min 05 s left at that speed; "
        "failed: 9 cause 0; 8 cause 1; 7 cause 2; 2 more causes"
    )

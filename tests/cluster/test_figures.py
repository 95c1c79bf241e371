"""Figures of a run over many pages: no clock of a worker is compared with another's."""

from __future__ import annotations

import pytest

from dsocr_core.cluster.status import GONE_AFTER, Figures
from dsocr_core.runs.sharded import Marker


def marker(index: int, worker: str, began: float, ended: float) -> Marker:
    return Marker(
        file="f", sha256="", worker_sha256="", shard=f"{index:09d}-{0:016x}", worker=worker, began=began,
        ended=ended, read=50, failed=0, quarantined=0, causes={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ahead_s", "gone_from", "shards", "pages_per_s"),
    [
        (0.0, 80, 80, 35.0), (86_400.0, 80, 80, 35.0), (-1e9, 80, 80, 35.0), (0.0, 40, 60, 35.0),
        (0.0, 40, 42 + 2 * GONE_AFTER, 25.0),
    ],
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

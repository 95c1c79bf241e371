"""The output of a run over a cluster, grown shard by shard as a test wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output, marker_of
from dsocr_core.cluster.planning import Planning
from dsocr_core.cluster.rows import failure_values, row_of
from dsocr_core.cluster.shards import PageRef, Shard
from dsocr_core.settings import Settings

BEGAN = 1_700_000_000.0
SHARD_PAGES, SHARDS = 50, 40
HOSTILE = "<img src=x onerror=alert(1)> [link](https://example.com)"
WORKERS = {"node-1/0": 2.0, "node-1/1": 2.1, "node-2/0": 1.9, f"slow {HOSTILE}": 6.0}
"""Seconds a shard of each; the last one is a straggler."""


class MadeUpOutput:
    """Shards are committed in order, by workers in turn."""

    def __init__(self, folder: Path) -> None:
        self.output = Output(str(folder))
        job = Job.of(Settings(preset="tiny"), ("pages",), SHARD_PAGES)
        self.output.begin(job)
        files = [f"/data/page-{number:05d}.png" for number in range(SHARD_PAGES * SHARDS)]
        planning = Planning(self.output, job, lambda paths: list, lambda cause: None)
        self._shards: list[Shard] = list(planning.shards(files))
        self._next = 0
        self._clock = dict.fromkeys(WORKERS, BEGAN)

    def commit(self, shards: int) -> None:
        """That many more shards; of every tenth page something failed."""
        names = list(WORKERS)
        for shard in self._shards[self._next : self._next + shards]:
            worker = names[shard.index % len(names)]
            began, self._clock[worker] = self._clock[worker], self._clock[worker] + WORKERS[worker]
            rows = [self._row(page) for page in shard.pages]
            attempt = self.output.write_attempt(shard.name, rows)
            self.output.commit(marker_of(shard.name, attempt, rows, worker, began, self._clock[worker]))
        self._next += shards

    def _row(self, page: PageRef) -> Any:
        if page.number % 50 == 7:
            return row_of(page, failure_values("ended by SIGABRT; it ended 3 processes", "quarantined"))
        if page.number % 50 == 9:
            return row_of(page, failure_values(f"{page.source}: {HOSTILE}; save it anew"))
        values = {"status": "read", "text_raw": "text", "new_tokens": 1000 + page.number % 7}
        return row_of(page, values | {"times": [["prefill", 21.0, 1], ["decode", 310.0, 1000]]})

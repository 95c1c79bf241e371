"""Shards that no worker could read in one go: what is there of them, until the rest is, too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.cluster.output import Attempt, Marker, Output, marker_of
from dsocr_core.cluster.rows import Row, failure_values, row_of
from dsocr_core.cluster.shards import PageRef, Shard

DRIVER = "driver"
"""Who commits such shards."""


@dataclass
class Mending:
    """One shard on its way."""

    shard: Shard
    pending: int = 0
    """Pieces that are being read."""
    files: list[tuple[str, str]] = field(default_factory=list)
    """Attempts with a part of its results: results and times."""
    rows: list[Row] = field(default_factory=list)
    """Those that are in no attempt: quarantined pages, and what an earlier generation had read."""
    workers: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.time)
    times: list[float] = field(default_factory=list)
    """When its pieces were begun and ended, by their workers' clocks."""
    generation: int = 0

    def add(self, outcome: Mapping[str, Any]) -> None:
        """What a worker has left of a piece."""
        if "file" in outcome:
            self.files.append((outcome["file"], outcome["times"]))
            self.workers.add(outcome["worker"])
            self.times += (outcome["began"], outcome["ended"])

    def quarantine(self, page: PageRef, deaths: int, cause: str) -> None:
        words = f"{cause}; it ended {deaths} processes, the last one while it was read alone"
        self.rows.append(row_of(page, failure_values(words, "quarantined")))

    def commit(self, output: Output) -> Marker:
        """Make one attempt of the parts, and commit it. May be tried again. Raises StorageError."""
        parts = [row for file, times in self.files for row in output.rows(file, times)]
        of_page = {row["number"]: row for row in [*self.rows, *parts]}  # a page may have been read twice
        rows = [of_page[page.number] for page in self.shard.pages]
        attempt = output.write_attempt(self.shard.name, rows)
        worker, began, ended = DRIVER, self.began, time.time()
        if len(self.workers) == 1:  # as its other shards: by its own clock
            (worker,), began, ended = self.workers, min(self.times), max(self.times)
        marker = marker_of(self.shard.name, attempt, rows, worker, began, ended, self.generation)
        output.commit(marker)
        for file, times in self.files:
            output.drop(Attempt(file, times, 0, ""))
        return marker

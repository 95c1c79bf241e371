"""Shards that no worker could read in one go: what is there of them, until the rest is, too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.cluster.output import Output, marker_of
from dsocr_core.cluster.pieces import Piece
from dsocr_core.cluster.shards import PageRef, Shard
from dsocr_core.history.sharded import Attempt, Marker, PageReading

DRIVER = "driver"
"""Who commits such shards."""


@dataclass
class Mending:
    """One shard on its way."""

    shard: Shard
    pending: int = 0
    """Pieces that are being read."""
    attempts: list[tuple[Attempt, tuple[int, ...]]] = field(default_factory=list)
    """Attempts with a part of its pages, and the numbers of these."""
    pages: list[PageReading] = field(default_factory=list)
    """Those that are in no attempt: quarantined pages, and what an earlier generation had read."""
    workers: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.time)
    times: list[float] = field(default_factory=list)
    """When its pieces were begun and ended, by their workers' clocks."""
    generation: int = 0

    def add(self, piece: Piece, outcome: Mapping[str, Any]) -> None:
        """What a worker has left of a piece."""
        if "attempt" in outcome:
            unread = set(outcome["unread"])
            numbers = tuple(page for page in piece.pages if page not in unread)
            self.attempts.append((Attempt(**outcome["attempt"]), numbers))
            self.workers.add(outcome["worker"])
            self.times += (outcome["began"], outcome["ended"])

    def quarantine(self, page: PageRef, deaths: int, cause: str) -> None:
        words = f"{cause}; it ended {deaths} processes, the last one while it was read alone"
        self.pages.append(page.failed(words, quarantined=True))

    def commit(self, output: Output) -> Marker:
        """Make one attempt of the parts, and commit it. May be tried again. Raises StorageError."""
        parts = [page for attempt, numbers in self.attempts for page in output.attempted(attempt, numbers)]
        of_number = {page.number: page for page in [*self.pages, *parts]}  # a page may have been read twice
        pages = [of_number[page.number] for page in self.shard.pages]
        attempt = output.write_attempt(self.shard.name, pages)
        worker, times = DRIVER, (self.began, time.time())
        if len(self.workers) == 1:  # as its other shards: by its own clock
            (worker,), times = self.workers, (min(self.times), max(self.times))
        marker = marker_of(self.shard.name, attempt, pages, worker, times, self.generation)
        output.commit(marker)
        for part, _ in self.attempts:
            output.drop(part)
        return marker

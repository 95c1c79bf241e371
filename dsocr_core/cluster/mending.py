"""Shards that no worker could read in one go: what is there of them, until the rest is, too."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dsocr_core.cluster.output import Output, marker_of
from dsocr_core.cluster.shards import PageRef, Shard
from dsocr_core.runs.sharded import Attempt, Marker, PageReading

DEATHS_BEFORE_HALVING = 2
WORKER_DEATHS_OF_A_PAGE = 3
"""So often a worker must be lost while it reads one page alone: machines are also lost for other reasons."""


@dataclass(frozen=True)
class Piece:
    """Pages of one shard that are read together."""

    shard: int
    pages: tuple[int, ...]
    """Their numbers in the run."""
    whole: bool = True
    """All of the shard: whoever has read it commits it."""
    deaths: int = 0
    """Processes that ended while they read these pages, or more of the same shard."""
    suspect: bool = False
    """Read alone in a process, as one of its pages may be to blame."""
    alone_deaths: int = 0
    """Deaths of the only page of a suspect piece."""


@dataclass(frozen=True)
class Death:
    """Process that ended while it read a piece."""

    cause: str
    of_worker: bool = False
    """The whole worker, for which there may be many reasons; else the process that reads."""
    count: int = 1


@dataclass(frozen=True)
class Next:
    """Fate of the pages that a death left unread."""

    pieces: tuple[Piece, ...] = ()
    quarantined: int | None = None
    """A page that is to blame."""


def after_death(piece: Piece, unread: Collection[int], started: Collection[int], death: Death) -> Next:
    """Decide what to read next. `unread` are pages of the piece without a result; of these the process had
    begun `started`, which is empty where nobody knows.
    """
    rest = tuple(page for page in piece.pages if page in set(unread))
    if not rest:
        return Next()
    deaths = piece.deaths + death.count
    again = replace(piece, pages=rest, whole=False, deaths=deaths)
    if deaths < DEATHS_BEFORE_HALVING and not piece.suspect:
        return Next((replace(again, whole=piece.whole and len(rest) == len(piece.pages)),))
    if len(rest) == 1:
        return _of_one_page(again, piece, death)
    to_blame = tuple(page for page in rest if page in set(started)) or rest
    others = tuple(page for page in rest if page not in set(to_blame))
    pieces = [replace(again, pages=half, suspect=True) for half in _halves(to_blame)]
    if others:
        pieces.append(Piece(piece.shard, others, whole=False))
    return Next(tuple(pieces))


def _of_one_page(again: Piece, before: Piece, death: Death) -> Next:
    was_alone = before.suspect and len(before.pages) == 1
    alone_deaths = before.alone_deaths + (death.count if was_alone else 0)
    needed = WORKER_DEATHS_OF_A_PAGE if death.of_worker else 1
    if alone_deaths >= needed:
        return Next(quarantined=again.pages[0])
    return Next((replace(again, suspect=True, alone_deaths=alone_deaths),))


def _halves(pages: tuple[int, ...]) -> list[tuple[int, ...]]:
    middle = (len(pages) + 1) // 2
    return [half for half in (pages[:middle], pages[middle:]) if half]


DRIVER = "driver"
"""Committer of such shards."""


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
    """Times at which its pieces were begun and ended, by their workers' clocks."""
    generation: int = 0

    def add(self, piece: Piece, outcome: Mapping[str, Any]) -> None:
        """Take what a worker has left of a piece."""
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

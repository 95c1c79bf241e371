"""State of an output, from any machine that sees it: no Dask, no worker is asked."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.output import Output
from dsocr_core.models.stages import TOP_LEVEL
from dsocr_core.runs.sharded import COMPLETE, Marker
from dsocr_core.runs.storage.store import StorageError
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.runs.record import RunRecord

RECENT_S = 300.0
"""The speed of a worker is that of its last minutes, by its own clock: no two clocks are compared."""
GONE_AFTER = 16
"""Shards of each worker that were handed out since a worker's last one: it takes part no more."""
_RECENT = 64
"""Shards of a worker whose times are stored."""
STRAGGLER_SHARE = 0.75
"""Share of the median worker's speed: who is slower is named."""
_FEWEST_SHARDS = 2
"""A worker's speed is known from so many on."""


@dataclass
class WorkerFigures:
    """Commits of one worker."""

    name: str
    shards: int = 0
    pages: int = 0
    failed: int = 0
    tokens: int = 0
    began: float = float("inf")
    ended: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each stage, summed over its pages."""
    newest: int = 0
    """The highest of its shards' indexes: they are handed out in order."""
    _recent: deque[tuple[float, float, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Beginnings, ends and pages of its last shards."""

    def add(self, marker: Marker) -> None:
        self.shards += 1
        self.pages += marker.pages
        self.failed += marker.failed + marker.quarantined
        self.tokens += marker.tokens
        self.began, self.ended = min(self.began, marker.began), max(self.ended, marker.ended)
        self.newest = max(self.newest, marker.index)
        self._recent.append((marker.began, marker.ended, marker.pages))
        for stage, milliseconds in marker.stages.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + milliseconds

    @property
    def pages_per_s(self) -> float | None:
        """Since it began."""
        return self.pages / (self.ended - self.began) if self.ended > self.began else None

    def a_page(self, total: float | None) -> float | None:
        """Mean of a sum over the pages that it read; those that failed have no part in it."""
        read = self.pages - self.failed
        return total / read if total is not None and read else None

    @property
    def recent_pages_per_s(self) -> float:
        """Speed of its last minutes; 0 before its first shard."""
        now = self._recent[-1][1] if self._recent else 0.0
        lately = [entry for entry in self._recent if now - RECENT_S < entry[1] <= now]
        since = max(min((began for began, _, _ in lately), default=now), now - RECENT_S)
        return sum(pages for _, _, pages in lately) / (now - since) if now > since else 0.0


class Figures:
    """Sums over markers; each shard counts once, by its newest generation. Memory: a few bytes a shard."""

    def __init__(self) -> None:
        self.read = self.failed = self.quarantined = self.shards = 0
        self.causes: dict[str, int] = {}
        self.workers: dict[str, WorkerFigures] = {}

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    def add(self, marker: Marker, replaces: Marker | None = None) -> None:
        """A shard's marker; `replaces` is the one of its generation before."""
        self._count(marker, 1)
        self.shards += 1
        if replaces is not None:  # who read it first did that work all the same
            self._count(replaces, -1)
            self.shards -= 1
            return
        self.workers.setdefault(marker.worker, WorkerFigures(marker.worker)).add(marker)

    def _count(self, marker: Marker, sign: int) -> None:
        self.read += sign * marker.read
        self.failed += sign * marker.failed
        self.quarantined += sign * marker.quarantined
        for cause, count in marker.causes.items():
            self.causes[cause] = self.causes.get(cause, 0) + sign * count
            if not self.causes[cause]:
                del self.causes[cause]

    @property
    def pages_per_s(self) -> float | None:
        """Sum the speeds of the workers that take part, in their last minutes; None before the first
        commit.
        """
        newest = max((worker.newest for worker in self.workers.values()), default=0)
        there = newest - GONE_AFTER * len(self.workers)
        speeds = [each.recent_pages_per_s for each in self.workers.values() if each.newest >= there]
        return sum(speeds) or None

    @property
    def stragglers(self) -> list[str]:
        """Workers much slower than the median, the slowest first."""
        speeds = {
            worker.name: speed
            for worker in self.workers.values()
            if worker.shards >= _FEWEST_SHARDS and (speed := worker.pages_per_s)
        }
        if len(speeds) < 2:
            return []
        limit = STRAGGLER_SHARE * statistics.median(speeds.values())
        return sorted((name for name, speed in speeds.items() if speed < limit), key=speeds.__getitem__)

    def facts(self, output: str) -> dict[str, Any]:
        """Totals, causes of failures, and each worker's speed and mean stage times, for a record."""
        slow = set(self.stragglers)
        slowest_first = sorted(self.workers.values(), key=lambda worker: worker.pages_per_s or 0.0)
        return {
            "output": output,
            "pages": self.pages,
            "read": self.read,
            "failed": self.failed,
            "quarantined": self.quarantined,
            "pages_per_s": _rounded(self.pages_per_s),
            "causes": dict(self.causes),
            "stragglers": self.stragglers,
            "workers": {
                worker.name: {
                    "pages": worker.pages,
                    "pages_per_s": _rounded(worker.pages_per_s),
                    "straggler": worker.name in slow,
                    "ms_per_page": {
                        stage: _rounded(worker.a_page(milliseconds))
                        for stage, milliseconds in worker.stages.items()
                    },
                }
                for worker in slowest_first[:MOST_WORKERS]
                if worker.pages
            },
        }

    def mean_times(self, backend: str) -> list[dict[str, Any]]:
        """Rows of `timings`: of each stage the mean over the pages that were read."""
        total: dict[str, float] = {}
        for worker in self.workers.values():
            for stage, milliseconds in worker.stages.items():
                total[stage] = total.get(stage, 0.0) + milliseconds
        return [
            {
                "backend": backend, "stage": stage, "milliseconds": milliseconds / self.read,
                "inside_prefill": stage not in TOP_LEVEL, "aggregate": "mean",
            }
            for stage, milliseconds in total.items()
            if self.read
        ]  # fmt: skip

    def failed_percent(self) -> float:
        return 100 * (self.failed + self.quarantined) / self.pages if self.pages else 0.0


MOST_WORKERS = 256
"""Workers of a run over a cluster that its record names."""


def record_figures(settings: Settings, record: RunRecord, figures: Figures, output: str) -> str:
    """Write a run of the history with the figures of an output; its id. Its pages stay in the output.

    Raises StorageError.
    """
    from dsocr_core.runs.storage.entries import open_storage
    from dsocr_core.runs.writer import RunWriter

    facts = record.environment | {"cluster": figures.facts(output)}
    with RunWriter(open_storage(history_location(settings)), replace(record, environment=facts)) as writer:
        writer.add("timings", figures.mean_times(settings.backend("a")))
    return record.id


def causes_words(causes: Mapping[str, int], most: int = 3) -> str:
    """The commonest causes in a line."""
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    words = [f"{count:,} {cause}" for cause, count in ordered[:most]]
    return "; ".join(words + ([f"{len(ordered) - most} more causes"] if len(ordered) > most else []))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@dataclass(frozen=True)
class Status:
    """Pages of a run by what became of them; `pages` is what is planned so far."""

    pages: int
    done: int
    """Read well."""
    failed: int
    quarantined: int
    pages_per_s: float | None
    complete: bool
    """Everything is listed, and every page is done, failed or quarantined."""

    @property
    def left(self) -> int:
        return self.pages - self.done - self.failed - self.quarantined

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"pages_per_s": self.pages_per_s and round(self.pages_per_s, 3)}


class StatusReader:
    """Reads an output again and again, each time only what is new."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.figures = Figures()
        self._seen: dict[str, tuple[str, Marker | None]] = {}
        """The marker of each shard that is counted; the marker itself where it may be replaced."""
        self._parts: dict[str, int] = {}
        self._pages: int | None = None

    def read(self) -> Status:
        """Raises DsocrError where there is no run."""
        if not self._seen:
            self.output.run()
        pages, complete = self._planned()
        names = self.output.marker_names()
        new = {name: shard for shard, name in names.items() if self._seen.get(shard, ("",))[0] != name}
        for marker in self.output.markers(new):
            before = self._seen.get(marker.shard, ("", None))[1]
            if marker.generation and before is None and (first := self._first_of(marker)) is not None:
                self.figures.add(first)
                before = first
            self.figures.add(marker, before)
            # Only what failed is read again: most markers need not stay in memory.
            stays = marker if marker.failed or marker.quarantined else None
            self._seen[marker.shard] = (marker.name, stays)
        figures = self.figures
        complete = complete and figures.pages == pages
        return Status(pages, figures.read, figures.failed, figures.quarantined, figures.pages_per_s, complete)

    def _first_of(self, marker: Marker) -> Marker | None:
        """Find who read the shard first, for the speed of the workers."""
        return self.output.marker(f"done/{marker.shard}.json")

    def _planned(self) -> tuple[int, bool]:
        if self._pages is None and (complete := self.output.document(COMPLETE)) is not None:
            self._pages = int(complete["pages"])
        if self._pages is not None:
            return self._pages, True
        for name in self.output.plan_parts():
            if name not in self._parts:
                self._parts[name] = len(self.output.plan_part(name))
        return sum(self._parts.values()), False


def read_status(location: str) -> Status:
    """Read how far the output at a path or URL is. Raises DsocrError."""
    try:
        return StatusReader(Output(location)).read()
    except StorageError as error:
        raise DsocrError(f"{error}; check the address and the way there") from error

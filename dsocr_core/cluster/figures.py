"""How a run over many pages goes: totals, speed, workers and stragglers, from the markers of its shards."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from dsocr_core.cluster.output import Marker

RECENT_S = 300.0
"""The speed of a run is that of its last minutes."""
STRAGGLER_SHARE = 0.75
"""Of the median worker's speed: who is slower is named."""
_FEWEST_SHARDS = 2
"""A worker's speed is known from so many on."""


@dataclass
class WorkerFigures:
    """What one worker committed."""

    name: str
    shards: int = 0
    pages: int = 0
    failed: int = 0
    tokens: int = 0
    began: float = float("inf")
    ended: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each stage, summed over its pages."""

    def add(self, marker: Marker) -> None:
        self.shards += 1
        self.pages += marker.pages
        self.failed += marker.failed + marker.quarantined
        self.tokens += marker.tokens
        self.began, self.ended = min(self.began, marker.began), max(self.ended, marker.ended)
        for stage, milliseconds in marker.stages.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + milliseconds

    @property
    def pages_per_s(self) -> float | None:
        return self.pages / (self.ended - self.began) if self.ended > self.began else None


class Figures:
    """Sums over markers; each shard counts once, by its newest generation. Memory: a few bytes a shard."""

    def __init__(self) -> None:
        self.read = self.failed = self.quarantined = self.shards = 0
        self.causes: dict[str, int] = {}
        self.workers: dict[str, WorkerFigures] = {}
        self._recent: list[tuple[float, float, int]] = []
        """Ends, beginnings and pages of shards that ended lately."""

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
        self._recent.append((marker.ended, marker.began, marker.pages))
        newest = max(ended for ended, _, _ in self._recent[-64:])
        if len(self._recent) > 4096 or self._recent[0][0] < newest - 2 * RECENT_S:
            self._recent = [entry for entry in self._recent if entry[0] > newest - RECENT_S]

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
        """Of the minutes before the newest commit; None before the first."""
        if not self._recent:
            return None
        newest = max(ended for ended, _, _ in self._recent)
        lately = [entry for entry in self._recent if entry[0] > newest - RECENT_S]
        since = max(min(began for _, began, _ in lately), newest - RECENT_S)
        return sum(pages for _, _, pages in lately) / (newest - since) if newest > since else None

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

    def failed_percent(self) -> float:
        return 100 * (self.failed + self.quarantined) / self.pages if self.pages else 0.0


def causes_words(causes: Mapping[str, int], most: int = 3) -> str:
    """The commonest causes in a line."""
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    words = [f"{count:,} {cause}" for cause, count in ordered[:most]]
    return "; ".join(words + ([f"{len(ordered) - most} more causes"] if len(ordered) > most else []))

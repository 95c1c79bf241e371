"""State of an output, from any machine that sees it: no Dask, no worker is asked."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dsocr_core.cluster.output import Output
from dsocr_core.models.stages import TOP_LEVEL
from dsocr_core.runs.sharded import COMPLETE, Marker

GONE_AFTER = 16
"""Shards of each worker that were handed out since a worker's last one: it takes part no more."""
STRAGGLER_SHARE = 0.75
"""Share of the median worker's speed: who is slower is named."""
_FEWEST_SHARDS = 2
"""Shards of a worker from which its speed is compared."""


@dataclass
class WorkerFigures:
    """Commits of one worker. Its times are by its own clock: no two clocks are compared."""

    name: str
    shards: int = 0
    pages: int = 0
    failed: int = 0
    busy_s: float = 0.0
    """Seconds in which it read a shard, or several."""
    ended: float = 0.0
    newest: int = 0
    """The highest of its shards' indexes: they are handed out in order."""
    stages: Counter[str] = field(default_factory=Counter)
    """Milliseconds of each stage, summed over its pages."""

    def add(self, marker: Marker) -> None:
        self.shards += 1
        self.pages += marker.pages
        self.failed += marker.failed + marker.quarantined
        self.busy_s += max(0.0, marker.ended - max(marker.began, self.ended))
        self.ended, self.newest = max(self.ended, marker.ended), max(self.newest, marker.index)
        self.stages.update(marker.stages)

    @property
    def pages_per_s(self) -> float:
        """0 before the first shard."""
        return self.pages / self.busy_s if self.busy_s else 0.0


class Figures:
    """Sums over markers; each shard counts once, by its newest generation."""

    def __init__(self) -> None:
        self.read = self.failed = self.quarantined = 0
        self.causes: Counter[str] = Counter()
        self.workers: dict[str, WorkerFigures] = {}

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    def add(self, marker: Marker, replaces: Marker | None = None) -> None:
        """A shard's marker; `replaces` is the one of its generation before."""
        for each, sign in ((marker, 1), *([(replaces, -1)] if replaces else [])):
            self.read += sign * each.read
            self.failed += sign * each.failed
            self.quarantined += sign * each.quarantined
            for cause, count in each.causes.items():
                self.causes[cause] += sign * count
        self.causes = +self.causes
        if replaces is None:  # else who read it first did that work all the same
            self.workers.setdefault(marker.worker, WorkerFigures(marker.worker)).add(marker)

    @property
    def pages_per_s(self) -> float | None:
        """Sum the speeds of the workers that take part; None before the first commit."""
        newest = max((worker.newest for worker in self.workers.values()), default=0)
        there = newest - GONE_AFTER * len(self.workers)
        return sum(each.pages_per_s for each in self.workers.values() if each.newest >= there) or None

    @property
    def slowest_first(self) -> list[WorkerFigures]:
        return sorted(self.workers.values(), key=lambda worker: worker.pages_per_s)

    @property
    def stragglers(self) -> list[str]:
        """Workers much slower than the median, the slowest first."""
        known = [each for each in self.slowest_first if each.shards >= _FEWEST_SHARDS and each.busy_s]
        if len(known) < 2:
            return []
        limit = STRAGGLER_SHARE * statistics.median(each.pages_per_s for each in known)
        return [each.name for each in known if each.pages_per_s < limit]

    def facts(self, output: str) -> dict[str, Any]:
        """Totals, causes of failures and stragglers, for the record of a run."""
        return {
            "output": output, "pages": self.pages, "read": self.read, "failed": self.failed,
            "quarantined": self.quarantined, "pages_per_s": _rounded(self.pages_per_s),
            "causes": dict(self.causes), "workers": len(self.workers), "stragglers": self.stragglers,
        }  # fmt: skip

    def mean_times(self, backend: str) -> list[dict[str, Any]]:
        """Rows of `timings`: of each stage the mean over the pages that were read."""
        total = sum((worker.stages for worker in self.workers.values()), Counter[str]())
        return [
            {
                "backend": backend, "stage": stage, "milliseconds": milliseconds / self.read,
                "inside_prefill": stage not in TOP_LEVEL, "aggregate": "mean",
            }
            for stage, milliseconds in total.items()
            if self.read
        ]  # fmt: skip


def causes_words(causes: Mapping[str, int], most: int = 3) -> str:
    """The commonest causes in a line."""
    ordered = Counter(causes).most_common()
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"pages_per_s": _rounded(self.pages_per_s)}


def read_status(output: Output) -> tuple[Status, Figures]:
    """Read how far a run is. Raises DsocrError where there is no run."""
    output.run()
    complete = output.document(COMPLETE)
    if complete is None:
        pages = sum(sum(1 for _ in output.plan_part(name)) for name in output.plan_parts())
    else:
        pages = int(complete["pages"])
    figures = Figures()
    for marker in output.markers(output.marker_names().values()):
        # Who read it first, for the speed of the workers.
        first = output.marker(f"done/{marker.shard}.json") if marker.generation else None
        if first is not None:
            figures.add(first)
        figures.add(marker, first)
    ended = complete is not None and figures.pages == pages
    state = (figures.read, figures.failed, figures.quarantined, figures.pages_per_s, ended)
    return Status(pages, *state), figures

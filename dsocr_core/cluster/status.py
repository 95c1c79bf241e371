"""State of an output, from any machine that sees it: no Dask, no worker is asked; and how it is shown."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import titled_table
from dsocr_core.base.formatting import duration
from dsocr_core.cluster.output import Output
from dsocr_core.models.stages import TOP_LEVEL
from dsocr_core.runs.sharded import COMPLETE, Marker

GONE_AFTER = 16
"""Shards of each worker that were handed out since a worker's last one: it takes part no more."""
STRAGGLER_SHARE = 0.75
"""Share of the median worker's speed: who is slower is named."""
_FEWEST_SHARDS = 2
"""Shards of a worker from which its speed is compared."""
_SHOWN_WORKERS = 16
_LINE_EVERY_S = 30.0
"""Between two lines where no terminal can be drawn on."""


@dataclass
class WorkerFigures:
    """Commits of one worker. Its times are by its own clock: no two clocks are compared.

    `busy_s` are seconds in which it read a shard, or several; `newest` is the highest of its shards' indexes:
    they are handed out in order; `stages` are milliseconds, summed over its pages.
    """

    name: str
    shards: int = 0
    pages: int = 0
    failed: int = 0
    busy_s: float = 0.0
    ended: float = 0.0
    newest: int = 0
    stages: Counter[str] = field(default_factory=Counter)

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
    """Pages of a run by what became of them; each shard counts once, by its newest generation.

    `planned` pages are listed so far, and `listed` is True where these are all.
    """

    def __init__(self, planned: int = 0, listed: bool = False) -> None:
        self.planned, self.listed = planned, listed
        self.read = self.failed = self.quarantined = 0
        self.causes: Counter[str] = Counter()
        self.workers: dict[str, WorkerFigures] = {}

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    @property
    def complete(self) -> bool:
        return self.listed and self.pages == self.planned

    def add(self, marker: Marker, replaces: Marker | None = None) -> None:
        """A shard's marker; `replaces` is the one of its generation before."""
        for each, sign in ((marker, 1), *([(replaces, -1)] if replaces else [])):
            self.read += sign * each.read
            self.failed += sign * each.failed
            self.quarantined += sign * each.quarantined
            self.causes.update({cause: sign * count for cause, count in each.causes.items()})
        self.causes = +self.causes
        if replaces is None:  # else who read it first did that work all the same
            self.workers.setdefault(marker.worker, WorkerFigures(marker.worker)).add(marker)

    @property
    def pages_per_s(self) -> float | None:
        """Sum the speeds of the workers that take part; None before the first commit."""
        newest = max((worker.newest for worker in self.workers.values()), default=0)
        there = newest - GONE_AFTER * len(self.workers)
        speed = sum(each.pages_per_s for each in self.workers.values() if each.newest >= there)
        return round(speed, 3) if speed else None

    @property
    def slowest_first(self) -> list[WorkerFigures]:
        return sorted(self.workers.values(), key=lambda worker: worker.pages_per_s)

    @property
    def stragglers(self) -> list[str]:
        """Workers much slower than the median, the slowest first."""
        known = [each for each in self.slowest_first if each.shards >= _FEWEST_SHARDS and each.busy_s]
        speeds = [each.pages_per_s for each in known]
        limit = STRAGGLER_SHARE * statistics.median(speeds) if len(known) > 1 else 0.0
        return [each.name for each in known if each.pages_per_s < limit]

    def document(self) -> dict[str, Any]:
        """The JSON document of `--status`."""
        return {
            "pages": self.planned, "done": self.read, "failed": self.failed, "quarantined": self.quarantined,
            "pages_per_s": self.pages_per_s, "complete": self.complete,
        }  # fmt: skip

    def facts(self, output: str) -> dict[str, Any]:
        """Totals, causes of failures and stragglers, for the record of a run."""
        counts = {name: getattr(self, name) for name in ("pages", "read", "failed", "quarantined")}
        workers = {"workers": len(self.workers), "stragglers": self.stragglers}
        speed = {"pages_per_s": self.pages_per_s, "causes": dict(self.causes)}
        return {"output": output, **counts, **speed, **workers}

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


def read_status(output: Output) -> Figures:
    """Read how far a run is. Raises DsocrError where there is no run."""
    output.run()
    if (complete := output.document(COMPLETE)) is not None:
        figures = Figures(int(complete["pages"]), listed=True)
    else:
        figures = Figures(sum(sum(1 for _ in output.plan_part(name)) for name in output.plan_parts()))
    for marker in output.markers(output.marker_names().values()):
        # Who read it first, for the speed of the workers.
        first = output.marker(f"done/{marker.shard}.json") if marker.generation else None
        if first is not None:
            figures.add(first)
        figures.add(marker, first)
    return figures


# --- for people -----------------------------------------------------------------------------------


class ClusterProgress:
    """A table that is drawn anew on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line_at = time.monotonic()
        self._live = Live(console=console, refresh_per_second=2, transient=True)
        self._draws = sys.stderr.isatty()

    def __enter__(self) -> ClusterProgress:
        if self._draws:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def committed(self, figures: Figures) -> None:
        """Show that a shard more is there."""
        if self._draws:
            self._live.update(Group(Text(status_line(figures)), worker_table(figures)))
        elif time.monotonic() - self._line_at > _LINE_EVERY_S:
            self._line_at = time.monotonic()
            self.say(status_line(figures))

    def say(self, words: str) -> None:
        """Print one line."""
        self._console.print(words, markup=False, highlight=False)


def status_line(figures: Figures) -> str:
    """Say how far a run is."""
    left = figures.planned - figures.pages
    words = f"{figures.read:,} of {figures.planned:,}{'' if figures.listed else ' or more'} pages read"
    if figures.failed or figures.quarantined:
        words += f", {figures.failed:,} failed, {figures.quarantined:,} quarantined"
    if speed := figures.pages_per_s:
        words += f", {speed:.3g} pages/s"
        words += f", {duration(1e3 * left / speed)} left at that speed" if left > 0 and figures.listed else ""
    return words


def worker_table(figures: Figures) -> Table:
    """The workers, the slowest first; stragglers are named. Below it the causes of failures."""
    table = titled_table("", "Worker", "Pages", "Pages/s", "Failed", "Decode ms/page", "Straggler")
    slow = set(figures.stragglers)
    for worker in figures.slowest_first[:_SHOWN_WORKERS]:
        read, decode = worker.pages - worker.failed, worker.stages.get("decode")
        table.add_row(
            Text(worker.name), f"{worker.pages:,}", f"{worker.pages_per_s:.3g}",
            f"{worker.failed:,}" if worker.failed else "",
            f"{decode / read:.0f}" if read and decode is not None else "",
            "straggler" if worker.name in slow else "",
        )  # fmt: skip
    more = len(figures.workers) - _SHOWN_WORKERS
    notes = [f"and {more} more workers"] if more > 0 else []
    notes += [f"failed: {causes_words(figures.causes)}"] if figures.causes else []
    table.caption = Text("; ".join(notes)) if notes else None
    return table


def causes_words(causes: Mapping[str, int], most: int = 3) -> str:
    """The commonest causes in a line."""
    ordered = Counter(causes).most_common()
    words = [f"{count:,} {cause}" for cause, count in ordered[:most]]
    return "; ".join(words + ([f"{len(ordered) - most} more causes"] if len(ordered) > most else []))

"""Status of an output, read from its files on any machine without Dask, and its display."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from dsocr_core.base.formatting import duration
from dsocr_core.cluster.output import Output
from dsocr_core.runs.sharded import COMPLETE, Marker

GONE_AFTER = 16
"""A worker counts as gone when this many shards per worker were handed out since its last one."""
_LINE_EVERY_S = 30.0
"""Seconds between two lines where the output is no terminal."""


@dataclass
class WorkerFigures:
    """Commits of one worker. Times are by its own clock: clocks of two machines are never compared.

    `busy_s` are seconds in which it read at least one shard. `newest` is the highest index of its shards,
    which are handed out in order.
    """

    pages: int = 0
    busy_s: float = 0.0
    ended: float = 0.0
    newest: int = 0

    def add(self, marker: Marker) -> None:
        self.pages += marker.pages
        self.busy_s += max(0.0, marker.ended - max(marker.began, self.ended))
        self.ended, self.newest = max(self.ended, marker.ended), max(self.newest, marker.index)


class Figures:
    """Pages of a run by outcome. `planned` counts all, None while they are being listed."""

    def __init__(self, planned: int | None = None) -> None:
        self.planned = planned
        self.read = self.failed = self.quarantined = 0
        self.causes: Counter[str] = Counter()
        self.workers: dict[str, WorkerFigures] = {}

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    @property
    def complete(self) -> bool:
        return self.pages == self.planned

    def add(self, marker: Marker) -> None:
        self.read += marker.read
        self.failed += marker.failed
        self.quarantined += marker.quarantined
        self.causes.update(marker.causes)
        self.workers.setdefault(marker.worker, WorkerFigures()).add(marker)

    @property
    def pages_per_s(self) -> float | None:
        """Sum of the speeds of the workers that are not gone; None before the first commit."""
        there = max((each.newest for each in self.workers.values()), default=0) - GONE_AFTER * len(
            self.workers
        )
        active = [each for each in self.workers.values() if each.newest >= there and each.busy_s]
        return round(sum(each.pages / each.busy_s for each in active), 3) or None

    def document(self) -> dict[str, Any]:
        """The JSON document of `--status`."""
        return {
            "pages": self.planned, "done": self.read, "failed": self.failed, "quarantined": self.quarantined,
            "pages_per_s": self.pages_per_s, "complete": self.complete,
        }  # fmt: skip


def read_status(output: Output) -> Figures:
    """Read the figures of an output. Raises DsocrError where there is none."""
    output.run()
    complete = output.document(COMPLETE)
    figures = Figures(None if complete is None else int(complete["pages"]))
    for marker in output.markers():
        figures.add(marker)
    return figures


# --- for people -----------------------------------------------------------------------------------


class ClusterProgress:
    """Line of progress, redrawn on a terminal and printed now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console, self._line_at = console, time.monotonic()
        self._status = console.status("starting")

    def __enter__(self) -> ClusterProgress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def committed(self, figures: Figures) -> None:
        """Show the figures after another shard was committed."""
        self._status.update(Text(status_line(figures)))
        if not self._console.is_terminal and time.monotonic() - self._line_at > _LINE_EVERY_S:
            self._line_at = time.monotonic()
            self.say(status_line(figures))

    def say(self, words: str) -> None:
        """Print one line."""
        self._console.print(words, markup=False, highlight=False)


def status_line(figures: Figures) -> str:
    """Write the progress of a run, and why pages failed."""
    known, left = "", 0
    if figures.planned is not None:
        known, left = f" of {figures.planned:,}", figures.planned - figures.pages
    words = f"{figures.read:,}{known} pages read"
    if figures.failed or figures.quarantined:
        words += f", {figures.failed:,} failed, {figures.quarantined:,} quarantined"
    if speed := figures.pages_per_s:
        words += f", {speed:.3g} pages/s"
        words += f", {duration(1e3 * left / speed)} left at that speed" if left > 0 else ""
    return f"{words}; failed: {causes_words(figures.causes)}" if figures.causes else words


def causes_words(causes: Mapping[str, int]) -> str:
    """Write the commonest causes in one line."""
    words = [f"{count:,} {cause}" for cause, count in Counter(causes).most_common()]
    more = [f"{len(words) - 3} more causes"] if len(words) > 3 else []
    return "; ".join(words[:3] + more)

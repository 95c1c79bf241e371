"""Progress of a run over many pages, on a terminal: totals, speed, time left, workers, failures by cause."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import titled_table
from dsocr_core.base.formatting import duration
from dsocr_core.cluster.status import Figures, causes_words

SHOWN_WORKERS = 16
LINE_EVERY_S = 30.0
"""Between two lines where no terminal can be drawn on."""


class ClusterProgress:
    """A table that is drawn anew on a terminal, a line now and then elsewhere. Thread-safe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._changing = threading.Lock()
        self._figures: Figures | None = None
        self._pages, self._complete, self._workers = 0, False, 0
        self._line_at = time.monotonic()
        self._live = Live(console=console, refresh_per_second=2, transient=True, get_renderable=self._drawn)
        self._draws = sys.stderr.isatty()

    def __enter__(self) -> ClusterProgress:
        if self._draws:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._draws:
            self._live.stop()

    def planned(self, pages: int, complete: bool) -> None:
        with self._changing:
            self._pages, self._complete = pages, complete

    def committed(self, figures: Figures, in_flight: int, workers: int) -> None:
        with self._changing:
            self._figures, self._workers = figures, workers
            line = None
            if not self._draws and time.monotonic() - self._line_at > LINE_EVERY_S:
                self._line_at = time.monotonic()
                line = self._line()
        if line:
            self._console.print(line, markup=False)

    def told(self, worker: str, words: Mapping[str, Any]) -> None:
        """Pages are shown when their shard is committed."""

    def said(self, words: str) -> None:
        self._console.print(words, markup=False, highlight=False)

    def _line(self) -> str:
        figures = self._figures
        if figures is None:
            return f"{self._pages:,} pages listed"
        total = f"{self._pages:,}{'' if self._complete else ' or more'}"
        words = [f"{figures.pages:,} of {total} pages"]
        speed = figures.pages_per_s
        if speed:
            words.append(f"{speed:.3g} pages/s on {self._workers} workers")
            if self._complete:
                words.append(f"{duration(1e3 * (self._pages - figures.pages) / speed)} left")
        failed = figures.failed + figures.quarantined
        if failed:
            words.append(f"{failed:,} failed: {causes_words(figures.causes)}")
        return ", ".join(words)

    def _drawn(self) -> Group:
        with self._changing:
            parts: list[Text | Table] = [Text(self._line())]
            if self._figures is not None and self._figures.workers:
                parts.append(worker_table(self._figures))
            return Group(*parts)


def worker_table(figures: Figures) -> Table:
    """The workers, the slowest first; stragglers are named."""
    table = titled_table("", "Worker", "Pages", "Pages/s", "Failed", "Decode ms/page", "Straggler")
    slow = set(figures.stragglers)
    ordered = sorted(figures.workers.values(), key=lambda worker: worker.pages_per_s or 0.0)
    for worker in ordered[:SHOWN_WORKERS]:
        speed, decode = worker.pages_per_s, worker.a_page(worker.stages.get("decode"))
        table.add_row(
            Text(worker.name),
            f"{worker.pages:,}",
            f"{speed:.3g}" if speed else "",
            f"{worker.failed:,}" if worker.failed else "",
            f"{decode:.0f}" if decode else "",
            "straggler" if worker.name in slow else "",
        )
    if len(ordered) > SHOWN_WORKERS:
        table.caption = f"and {len(ordered) - SHOWN_WORKERS} more"
    return table

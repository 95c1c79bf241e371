"""Progress of a run over many pages, on a terminal: totals, speed, time left, workers, failures by cause."""

from __future__ import annotations

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import titled_table
from dsocr_core.base.formatting import duration
from dsocr_core.cluster.status import Figures, Status, causes_words

SHOWN_WORKERS = 16
LINE_EVERY_S = 30.0
"""Between two lines where no terminal can be drawn on."""


class ClusterProgress:
    """A table that is drawn anew on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pages, self._complete = 0, False
        self._line_at = time.monotonic()
        self._live = Live(console=console, refresh_per_second=2, transient=True)
        self._draws = sys.stderr.isatty()

    def __enter__(self) -> ClusterProgress:
        if self._draws:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def planned(self, pages: int, complete: bool) -> None:
        """So many pages are listed, and whether these are all."""
        self._pages, self._complete = pages, complete

    def committed(self, figures: Figures) -> None:
        """A shard more is there."""
        counts = (figures.read, figures.failed, figures.quarantined)
        state = Status(self._pages, *counts, figures.pages_per_s, False)
        line = status_line(state, self._complete)
        if self._draws:
            self._live.update(Group(Text(line), worker_table(figures)))
        elif time.monotonic() - self._line_at > LINE_EVERY_S:
            self._line_at = time.monotonic()
            self.said(line)

    def said(self, words: str) -> None:
        """One line for people."""
        self._console.print(words, markup=False, highlight=False)


def status_line(state: Status, listed: bool = True) -> str:
    """Say how far a run is; `listed` where all of its pages are planned."""
    ended = state.done + state.failed + state.quarantined
    words = f"{state.done:,} of {state.pages:,}{'' if listed else ' or more'} pages read"
    if state.failed or state.quarantined:
        words += f", {state.failed:,} failed, {state.quarantined:,} quarantined"
    if speed := state.pages_per_s:
        words += f", {speed:.3g} pages/s"
        if ended < state.pages and listed:
            words += f", {duration(1e3 * (state.pages - ended) / speed)} left at that speed"
    return words


def worker_table(figures: Figures) -> Table:
    """The workers, the slowest first; stragglers are named. Below it the causes of failures."""
    table = titled_table("", "Worker", "Pages", "Pages/s", "Failed", "Decode ms/page", "Straggler")
    slow = set(figures.stragglers)
    for worker in figures.slowest_first[:SHOWN_WORKERS]:
        read = worker.pages - worker.failed
        table.add_row(
            Text(worker.name),
            f"{worker.pages:,}",
            f"{worker.pages_per_s:.3g}",
            f"{worker.failed:,}" if worker.failed else "",
            f"{worker.stages['decode'] / read:.0f}" if read and "decode" in worker.stages else "",
            "straggler" if worker.name in slow else "",
        )
    more = len(figures.workers) - SHOWN_WORKERS
    notes = [f"and {more} more workers"] if more > 0 else []
    notes += [f"failed: {causes_words(figures.causes)}"] if figures.causes else []
    table.caption = Text("; ".join(notes)) if notes else None
    return table

"""Output of every command: exit codes, errors, tables, and how Ctrl-C ends it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dsocr_core.base.formatting import shortened
from dsocr_core.base.sanitise import visible


class SafeConsole(Console):
    """A console on which no text can steer the terminal: file names, model text and messages of workers."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


class SafeFormatter(logging.Formatter):
    """Log lines of which the same holds."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


OK, FAILED, BAD_USAGE, SLOWER, INCONCLUSIVE = 0, 1, 2, 3, 4
"""Exit codes: all well; a page failed or differs; bad usage; of a gate, slower and neither."""

_INTERRUPTED = 130
_VERDICT_STYLES = {"identical": "green", "within_tolerance": "yellow",
                   "not_comparable": "bright_black"}  # fmt: skip


def titled_table(title: str, *columns: str) -> Table:
    """An empty table of figures that stay whole; the first column names the rows."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


FEWEST_OF_NAME = 16
"""Characters of a name that a table leaves it."""
_NARROW = 110
"""Characters of a console below which sentences have no column of their own."""
_UNKNOWN = {"not known", "not measured"}


class Name:
    """A name in a table, on one line however narrow the terminal is."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())

    def __str__(self) -> str:
        return self.text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        wide = cell_len(self.text)
        return Measurement(min(wide, FEWEST_OF_NAME), wide)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(shortened(self.text, options.max_width), no_wrap=True, overflow="ellipsis")


class PageTable:
    """A table of pages, whose names come first.

    A column of which nothing is known on any page is named below the table. So is `words`, a column of
    sentences, where the console is narrow.
    """

    def __init__(self, *columns: str, words: str = "") -> None:
        self._columns, self._words = columns, words
        self._rows: list[tuple[RenderableType, ...]] = []

    def add_row(self, *cells: RenderableType) -> None:
        """Add the cells of a page, one a column."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        shown: list[list[RenderableType]] = []
        unknown, below = [], []
        for place, name in enumerate(self._columns):
            cells = [row[place] for row in self._rows]
            said, text = set(map(str, cells)), not place or name == self._words
            if place and said & _UNKNOWN and said <= {*_UNKNOWN, "-"}:
                unknown.append(name)
            elif name == self._words and options.max_width < _NARROW:
                below = cells
            else:
                wide, side = (FEWEST_OF_NAME, "left") if text else (None, "right")
                table.add_column(name, min_width=wide, justify=side, no_wrap=not text)  # type: ignore[arg-type]
                shown.append(cells)
        for row in zip(*shown, strict=True):
            table.add_row(*row)
        yield table
        if unknown:
            yield Text(f"not known or not measured: {', '.join(unknown)}")
        for row, words in zip(self._rows, below, strict=False):
            if str(words):
                yield Text(f"{row[0]}: {words}")


def verdict_text(verdict: str) -> Text:
    """A verdict of parity in its colour; green is for pages without a difference."""
    return Text(verdict.replace("_", " "), style=_VERDICT_STYLES.get(verdict, "red"))


@contextmanager
def cancelled_by_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; a second one ends this process at once. For the main thread."""
    cancel = threading.Event()

    def stop(*_: object) -> None:
        if cancel.is_set():
            os._exit(_INTERRUPTED)
        cancel.set()

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)


def print_error(console: Console, message: str) -> None:
    console.print("[bold red]error:[/] ", end="")
    console.print(" ".join(message.split()), markup=False, highlight=False)

"""Output of every command: exit codes, errors, tables, and how Ctrl-C ends it."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dsocr_core.base.formatting import shortened
from dsocr_core.base.sanitise import json_line, name_text, visible


class SafeConsole(Console):
    """A console on which no text can steer the terminal: file names, model text and messages of workers."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


class SafeFormatter(logging.Formatter):
    """Log lines of which the same holds."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def print_json(data: Any) -> None:
    """One JSON document on a line of stdout, in characters that every terminal and decoder takes."""
    print(json_line(data))


OK, FAILED, BAD_USAGE, SLOWER, INCONCLUSIVE = 0, 1, 2, 3, 4
"""Exit codes: all well; a page failed or differs; bad usage; of a gate, slower and neither."""

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


_NARROW = 110
"""Characters of a console below which sentences have no column of their own."""
_UNKNOWN = ("not known", "not measured")


class PageTable:
    """A table of pages, whose names come first.

    A column of which nothing is known on any page is named below the table. So is `words`, a column of
    sentences, where the console is narrow.
    """

    def __init__(self, *columns: str, words: str = "") -> None:
        self._columns, self._words = columns, words if words in columns else ""
        self._rows: list[tuple[RenderableType, ...]] = []

    def add_row(self, *cells: RenderableType) -> None:
        """Add the cells of a page, one a column."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unknown = [name for place, name in enumerate(self._columns) if place and self._is_unknown(place)]
        below = [self._words] if self._words and options.max_width < _NARROW else []
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        places = [place for place, name in enumerate(self._columns) if name not in (*unknown, *below)]
        for name in map(self._columns.__getitem__, places):
            text = name in (self._columns[0], self._words)
            table.add_column(
                name, min_width=FEWEST_OF_NAME if text else None,
                justify="left" if text else "right", no_wrap=not text,
            )  # fmt: skip
        for row in self._rows:
            table.add_row(*(row[place] for place in places))
        yield table
        if unknown:
            yield Text(f"not known or not measured: {', '.join(unknown)}")
        for row in self._rows if below else ():
            if words := str(row[self._columns.index(self._words)]):
                yield Text(f"{row[0]}: {words}")

    def _is_unknown(self, place: int) -> bool:
        cells = {str(row[place]) for row in self._rows}
        return bool(cells & {*_UNKNOWN}) and cells <= {*_UNKNOWN, "-"}


def verdict_text(verdict: str) -> Text:
    """A verdict of parity in its colour; green is for pages without a difference."""
    return Text(verdict.replace("_", " "), style=_VERDICT_STYLES.get(verdict, "red"))


@contextmanager
def cancelled_by_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets. For the main thread."""
    cancel = threading.Event()
    previous = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)


def print_error(console: Console, message: str) -> None:
    console.print("[bold red]error:[/] ", end="")
    console.print(" ".join(message.split()), markup=False, highlight=False)


def typed_command(arguments: Sequence[str] | None) -> str:
    """The command line that makes the run again, with or without the `dsocr` script."""
    given = sys.argv[1:] if arguments is None else arguments
    return name_text(shlex.join(["python", "-m", "dsocr_core", *given]))

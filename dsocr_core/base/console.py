"""Output of every command: exit codes, errors, tables, and how Ctrl-C ends it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

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
    """An empty table of figures that stay whole; the first column names the rows, folded if need be."""
    table = Table(
        title=title or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column(columns[0], overflow="fold", min_width=16)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def verdict_text(verdict: str) -> Text:
    """A verdict of parity in its colour; green is for pages without a difference."""
    return Text(verdict.replace("_", " "), style=_VERDICT_STYLES.get(verdict, "red"))


@contextmanager
def cancelled_by_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets; a second one ends this process at once. For the main thread."""
    cancel = threading.Event()

    def stop(*_: object) -> None:
        cancel.set()
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)


def print_error(console: Console, message: str) -> None:
    console.print("[bold red]error:[/] ", end="")
    console.print(" ".join(message.split()), markup=False, highlight=False)

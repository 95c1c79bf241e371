"""What every command shows: exit codes, errors, tables, and how Ctrl-C ends it."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

OK, FAILED, BAD_USAGE = 0, 1, 2
"""Exit codes: all well; a page failed or differs; bad usage."""

_VERDICT_STYLES = {"identical": "green", "within_tolerance": "yellow",
                   "not_comparable": "bright_black"}  # fmt: skip


def titled_table(title: str, *columns: str) -> Table:
    """An empty table of figures that stay whole; the first column names the rows."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


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
    return shlex.join(["python", "-m", "dsocr_core", *(sys.argv[1:] if arguments is None else arguments)])

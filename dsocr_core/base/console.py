"""Output of every command: exit codes, a safe console, tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

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


def titled_table(title: str, *columns: str) -> Table:
    """An empty table of figures that stay whole; the first column names the rows, folded if need be."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(columns[0], overflow="fold", min_width=16)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table

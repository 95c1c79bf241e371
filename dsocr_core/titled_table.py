"""The table that the measuring commands print: a title, names on the left, figures that stay whole."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table


def titled_table(title: str, *columns: str) -> Table:
    """An empty one; the first column names the rows."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table

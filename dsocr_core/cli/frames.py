"""Tables of pandas, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.base.formatting import amount, percent
from dsocr_core.base.sanitise import visible

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, tuple[str, str]]
"""By column of figures its heading and unit: "%" is a share of 1, "" a name or a bare number."""


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready values; what is not known is null."""
    text = frame.to_json(orient="records", date_format="iso", date_unit="ms", double_precision=15)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def print_figures(console: Console, frame: pd.DataFrame, columns: Columns, title: str = "") -> None:
    """Print figures; the first column names the rows, columns without a figure are left out."""
    names = [frame.columns[0], *(name for name in columns if frame[name].notna().any())]
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        head, justify = columns.get(name, (name.capitalize(), ""))[0], "left" if name == names[0] else "right"
        table.add_column(head, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in frame.to_dict("records"):
        table.add_row(*(_figure(row[name], columns.get(name, ("", ""))[1]) for name in names))
    console.print(table)


def _figure(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return percent(100 * value) if unit == "%" else amount(value, unit)


def print_frame(console: Console, frame: pd.DataFrame) -> None:
    """Print a table of any values; what is not known is empty."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in frame.columns:
        table.add_column(Text(str(column)), overflow="fold", no_wrap=column in ("run_id", "created"))
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(visible(_text(value))) for value in row))
    console.print(table)


def _text(value: Any) -> str:
    import pandas as pd

    if isinstance(value, (list, tuple)) or getattr(value, "shape", None):
        return ", ".join(map(str, value))
    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

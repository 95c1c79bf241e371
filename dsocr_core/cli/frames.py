"""Tables of pandas, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import print_json, titled_table
from dsocr_core.base.formatting import amount, percent
from dsocr_core.base.sanitise import visible

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, tuple[str, str]]
"""By column of figures its heading and unit: "%" is a share of 1, "" a name or a bare number."""


def print_answer(console: Console, as_json: bool, document: Any, *shown: RenderableType) -> None:
    """Print one JSON document, or what people are shown of it."""
    if as_json:
        print_json(document)
        return
    for each in shown:
        console.print(each, markup=False, highlight=False)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready values; what is not known is null."""
    text = frame.to_json(orient="records", date_format="iso", date_unit="ms", double_precision=15)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def figures_table(frame: pd.DataFrame, columns: Columns, title: str = "") -> Table:
    """A table of figures; the first column names the rows, columns without a figure are left out."""
    names = [frame.columns[0], *(name for name in columns if frame[name].notna().any())]
    table = titled_table(title, *(columns.get(name, (name.capitalize(), ""))[0] for name in names))
    for row in frame.to_dict("records"):
        table.add_row(*(_figure(row[name], columns.get(name, ("", ""))[1]) for name in names))
    return table


def _figure(value: Any, unit: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return percent(100 * value) if unit == "%" else amount(value, unit)


def frame_table(frame: pd.DataFrame) -> Table:
    """A table of any values; what is not known is empty."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in frame.columns:
        table.add_column(Text(str(column)), overflow="fold", no_wrap=column in ("run_id", "created"))
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(visible(_text(value))) for value in row))
    return table


def _text(value: Any) -> str:
    import pandas as pd

    if isinstance(value, (list, tuple)) or getattr(value, "shape", None):
        return ", ".join(map(str, value))
    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

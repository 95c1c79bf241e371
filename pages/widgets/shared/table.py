"""Tables of figures: the frame keeps its numbers, so columns sort as such and the CSV is the same frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import NOT_MEASURED, percent, scale_of, signed, significant
from dsocr_core.reading.spreadsheet import frame_csv
from dsocr_core.runs.labels import has_value

MOST_ROWS = 24
"""Longer tables scroll."""
_FEW = 12
_TALL, _LESS_TALL = 640, 420
"""Pixels of a table that scrolls."""
_MARKED = "background-color: rgb(192 54 44 / 0.3)"

_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "": significant,
    "share": lambda value: percent(100 * value),
    "%": percent,
    "count": lambda value: f"{int(value):,}",
}
_OF: Mapping[str, tuple[str, float]] = {"ms": ("s", 1e-3), "number": ("", 1.0)}
"""Units that get a prefix, where a number is given in another one, and how much of it that is."""


@dataclass(frozen=True)
class Column:
    """Column as it is headed and written; the numbers stay what they are.

    `unit` is that of the numbers: FLOP, B, s, ms and the like get a prefix, the same in a whole table, which
    the head says; a "+" before them asks for signs. "share" is of 1 and "%" of 100, "number" takes a prefix
    alone, "count" is a whole number, "" a ratio; or a function that puts one value into words. "text" is as
    it is, "bar" draws a share of 1, "line" a list of numbers from zero; a format of printf (`%.3f`) is the
    browser's own work.
    """

    head: str
    unit: str | Callable[[Any], str] = "text"
    about: str = ""
    """A sentence for the pointer."""
    left: bool = False
    width: int | None = None
    """In pixels."""

    @property
    def prefixed(self) -> tuple[str, float] | None:
        """The unit that gets a prefix, and how much of it a number is; None of a column without one."""
        unit = self.unit
        if callable(unit) or unit in _WRITERS or unit in ("text", "bar", "line") or unit.startswith("%."):
            return None
        return _OF.get(unit.removeprefix("+"), (unit.removeprefix("+"), 1.0))

    def writer(self, scale: float) -> Callable[[Any], str] | None:
        """Formatter of a cell whose prefixed unit is `scale`; None where the browser formats."""
        if self.prefixed:
            factor, write = self.prefixed[1] / scale, signed if str(self.unit)[0] == "+" else significant
            return lambda value: write(factor * value)
        return self.unit if callable(self.unit) else _WRITERS.get(self.unit)

    def config(self, unit: str) -> Any:
        """For the browser: a head with its unit, a side and a sentence."""
        head = f"{self.head} ({unit})" if unit else self.head
        given: dict[str, Any] = {"label": head, "help": self.about or None, "width": self.width}
        if self.unit == "bar":
            return st.column_config.ProgressColumn(**given, format="percent", min_value=0, max_value=1)
        if self.unit == "line":
            return st.column_config.LineChartColumn(**given, y_min=0)
        if str(self.unit).startswith("%."):
            return st.column_config.NumberColumn(**given, format=str(self.unit))
        text = self.unit == "text" or self.left
        return st.column_config.Column(**given, alignment=None if text else "right")


def draw(
    frame: pd.DataFrame,
    columns: Mapping[str, Column] | None = None,
    missing: str = NOT_MEASURED,
    most: int = MOST_ROWS,
    marked: Sequence[bool] | None = None,
    row: int = 31,
    **more: Any,
) -> None:
    """Show those columns of a frame, in that order; those that it lacks are left out, nulls are `missing`.

    Without `columns` all of them as they are. A table of more than `most` rows scrolls. `marked` rows stand
    out. `row` is the height of a row in pixels; two lines of a text have room in 57. `more` goes to
    `st.dataframe`: a key and what is done when rows are chosen.
    """
    there = {name: column for name, column in (columns or {}).items() if name in frame}
    shown = frame[list(there)].reset_index(drop=True) if columns is not None else frame
    scales = scales_of(there, shown)
    units = {
        name: scales[column.prefixed[0]] if column.prefixed else (1.0, "") for name, column in there.items()
    }
    # A browser takes no whole number beyond 2**53.
    shown = shown.astype({name: float for name, column in there.items() if column.prefixed})
    written = {name: write for name, column in there.items() if (write := column.writer(units[name][0]))}
    style = (
        shown.style.format(
            {
                name: lambda value, write=write: write(value) if has_value(value) else ""
                for name, write in written.items()
            }
        )
        if written or marked
        else shown
    )
    if marked:
        style = style.apply(lambda column: [_MARKED * one for one in marked])
    st.dataframe(
        style, hide_index=True, placeholder=missing, row_height=row,
        height=row * len(shown) + 33 if len(shown) <= most else _TALL if most > _FEW else _LESS_TALL,
        column_config={name: column.config(units[name][1]) for name, column in there.items()}, **more,
    )  # fmt: skip


def height_of(rows: int) -> int:
    """Pixels of a table that shows all of its rows: with "content" what is below it would move once more."""
    return 31 * (rows + 1) + 2


def scales_of(columns: Mapping[str, Column], frame: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """One prefix for all times of a table, one for all bytes, and so on: its size and the unit's name.

    It is one in which the largest has two to five digits before its point: small ones stay legible, too.
    """
    largest: dict[str, float] = {}
    for name, column in columns.items():
        if column.prefixed:
            unit, of = column.prefixed
            values = pd.to_numeric(frame[name]).abs()
            known = of * values[values < inf].max()
            largest[unit] = max(largest.get(unit, 0.0), 0.0 if pd.isna(known) else float(known))
    return {unit: scale_of(most / 30 or 1.0, unit) for unit, most in largest.items()}


def csv_of(frame: pd.DataFrame) -> bytes:
    """CSV in UTF-8, which a spreadsheet shows and does not run."""
    return frame_csv(frame).encode(errors="replace")

"""Tables of figures: the frame keeps its numbers, so columns sort as such and the CSV is the same frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import pandas as pd
import streamlit as st
from pandas.api.types import is_numeric_dtype

from dsocr_core.base.formatting import NOT_MEASURED, percent, scale_of, signed, significant
from dsocr_core.reading.spreadsheet import frame_csv
from dsocr_core.runs.labels import has_value

MOST_ROWS = 24
"""Longer tables scroll."""
_FEW = 12
_TALL, _LESS_TALL = 640, 420
"""Pixels of a table that scrolls."""

_BEYOND, _DIGITS = 2**53, 30
"""A browser takes no number from here on: it gets its digits, so many that they sort as numbers do."""
_MARKED = "background-color: rgb(192 54 44 / 0.3)"

_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "": significant,
    "share": lambda value: percent(100 * value),
    "%": percent,
    "count": lambda value: f"{int(value):,}",
    "text": str,
}
_OF: Mapping[str, tuple[str, float]] = {"ms": ("s", 1e-3), "number": ("", 1.0)}
"""Units that get a prefix, where a number is given in another one, and how much of it that is."""


@dataclass(frozen=True)
class Column:
    """Column of numbers, as it is headed and written; the numbers stay what they are.

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

    def write(self, value: Any) -> str:
        """The words of one cell."""
        if not has_value(value):
            return ""
        if callable(self.unit):
            return self.unit(value)
        return _WRITERS[self.unit](value)

    @property
    def is_written(self) -> bool:
        """Tell whether the words of its cells are made here, and not by the browser."""
        return callable(self.unit) or not (self.unit in ("text", "bar", "line") or self.unit.startswith("%."))

    @property
    def prefixed(self) -> tuple[str, float] | None:
        """The unit that gets a prefix, and how much of it a number is; None of a column without one."""
        if callable(self.unit) or self.unit in _WRITERS or not self.is_written:
            return None
        unit = self.unit.removeprefix("+")
        return _OF.get(unit, (unit, 1.0))

    def scaled(self, size: float, unit: str) -> Column:
        """The same column in a prefixed unit, so large in the unit itself."""
        of, write = (
            (self.prefixed or ("", 1.0))[1] / size,
            signed if str(self.unit)[0] == "+" else significant,
        )
        head = f"{self.head} ({unit})" if unit else self.head
        return replace(self, head=head, unit=lambda value: write(of * value))

    @property
    def config(self) -> Any:
        """For the browser: a head, a side and a sentence."""
        given: dict[str, Any] = {"label": self.head, "help": self.about or None, "width": self.width}
        if self.unit == "bar":
            return st.column_config.ProgressColumn(**given, format="percent", min_value=0, max_value=1)
        if self.unit == "line":
            return st.column_config.LineChartColumn(**given, y_min=0)
        if not self.is_written and self.unit != "text":
            return st.column_config.NumberColumn(**given, format=str(self.unit))
        text = self.unit == "text" or self.left
        return st.column_config.Column(**given, alignment=None if text else "right")


def draw(
    frame: pd.DataFrame,
    columns: Mapping[str, Column] | None = None,
    missing: str = NOT_MEASURED,
    most: int = MOST_ROWS,
    marked: Sequence[bool] | None = None,
    **more: Any,
) -> None:
    """Show those columns of a frame, in that order; those that it lacks are left out, nulls are `missing`.

    Without `columns` all of them as they are. A table of more than `most` rows scrolls. `marked` rows stand
    out. `more` goes to `st.dataframe`: a key and what is done when rows are chosen.
    """
    there = in_one_unit({name: column for name, column in (columns or {}).items() if name in frame}, frame)
    shown = frame[list(there)].reset_index(drop=True) if columns is not None else frame
    written = {name: column.write for name, column in there.items() if column.is_written}
    for name in written:
        if is_numeric_dtype(shown[name]) and shown[name].abs().max() >= _BEYOND:
            shown = shown.assign(**{name: shown[name].map(f"{{:{_DIGITS}.0f}}".format, na_action="ignore")})
            written[name] = partial(_of_digits, there[name].write)
    style = shown.style.format(written) if written or marked else shown
    if marked:
        style = style.apply(lambda column: [_MARKED * one for one in marked])
    st.dataframe(
        style, hide_index=True, placeholder=missing,
        height=height_of(len(shown)) if len(shown) <= most else _TALL if most > _FEW else _LESS_TALL,
        column_config={name: column.config for name, column in there.items()}, **more,
    )  # fmt: skip


def height_of(rows: int) -> int:
    """Pixels of a table that shows all of its rows: with "content" what is below it would move once more."""
    return 31 * (rows + 1) + 2


def _of_digits(write: Callable[[Any], str], digits: Any) -> str:
    return write(float(digits) if has_value(digits) else None)


def in_one_unit(columns: Mapping[str, Column], frame: pd.DataFrame) -> dict[str, Column]:
    """Put all times of a table in one unit, all bytes in one, and so on, and write it in the heads.

    It is one in which the largest has two to five digits before its point: small ones stay legible, too.
    """
    largest: dict[str, float] = {}
    for name, column in columns.items():
        if column.prefixed:
            unit, of = column.prefixed
            values = pd.to_numeric(frame[name]).abs()
            known = of * values[values < inf].max()
            largest[unit] = max(largest.get(unit, 0.0), 0.0 if pd.isna(known) else float(known))
    scales = {unit: scale_of(most / 30 or 1.0, unit) for unit, most in largest.items()}
    return {
        name: column.scaled(*scales[column.prefixed[0]]) if column.prefixed else column
        for name, column in columns.items()
    }


def csv_of(frame: pd.DataFrame) -> bytes:
    """CSV in UTF-8, which a spreadsheet shows and does not run."""
    return frame_csv(frame).encode(errors="replace")

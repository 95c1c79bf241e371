"""Tables of figures: the frame keeps its numbers, so columns sort as such and the CSV is the same frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.words import NOT_MEASURED, amount, duration, percent, signed, significant
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
    "ms": duration,
    "share": lambda value: percent(100 * value),
    "%": percent,
    "number": amount,
    "count": lambda value: f"{int(value):,}",
    "+FLOP": lambda value: signed(value, "FLOP"),
    "text": str,
}


@dataclass(frozen=True)
class Column:
    """Column of numbers, as it is headed and written; the numbers stay what they are.

    `unit` is that of the numbers: FLOP, B, s and the like get a prefix, "ms" goes on to s and min, "share" is
    of 1 and "%" of 100, "number" takes a prefix alone, "count" is a whole number, "" a ratio; or a function
    that puts one value into words. "text" is shown as it is, "bar" draws a share of 1, and a format of printf
    (`%.3f`) is the browser's own work.
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
        writer = _WRITERS.get(self.unit)
        return writer(value) if writer else amount(value, self.unit)

    @property
    def is_written(self) -> bool:
        """Tell whether the words of its cells are made here, and not by the browser."""
        return callable(self.unit) or not (self.unit in ("text", "bar") or self.unit.startswith("%."))

    @property
    def config(self) -> Any:
        """For the browser: a head, a side and a sentence."""
        given: dict[str, Any] = {"label": self.head, "help": self.about or None, "width": self.width}
        if self.unit == "bar":
            return st.column_config.ProgressColumn(**given, format="percent", min_value=0, max_value=1)
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
    there = {name: column for name, column in (columns or {}).items() if name in frame}
    shown = frame[list(there)].reset_index(drop=True) if columns is not None else frame
    written = {name: column.write for name, column in there.items() if column.is_written}
    style = shown.style.format(written) if written or marked else shown
    if marked:
        style = style.apply(lambda column: [_MARKED * one for one in marked])
    st.dataframe(
        style, hide_index=True, placeholder=missing,
        height="content" if len(shown) <= most else _TALL if most > _FEW else _LESS_TALL,
        column_config={name: column.config for name, column in there.items()}, **more,
    )  # fmt: skip


def csv_of(frame: pd.DataFrame) -> bytes:
    """CSV in UTF-8, which a spreadsheet shows and does not run."""
    return frame_csv(frame).encode(errors="replace")

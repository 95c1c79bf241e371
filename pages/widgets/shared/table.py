"""Tables of figures: the frame keeps its numbers, so columns sort as such and the CSV is the same frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.words import NOT_MEASURED, amount, duration, percent, signed, significant
from pages.widgets.shared.labels import has_value

MOST_ROWS = 24
"""Longer tables scroll."""
_TALL = 640
"""Pixels of a table that scrolls."""


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
    """How a column of numbers is headed and written; the numbers stay what they are.

    `unit` is that of the numbers: FLOP, B, s and the like get a prefix, "ms" goes on to s and min, "share" is
    of 1 and "%" of 100, "number" takes a prefix alone, "count" is a whole number, "" a ratio; or a function
    that puts one value into words. "text" is shown as it is, "bar" draws a share of 1.
    """

    head: str
    unit: str | Callable[[Any], str] = "text"
    about: str = ""
    """A sentence for the pointer."""
    left: bool = False

    def write(self, value: Any) -> str:
        """The words of one cell."""
        if not has_value(value):
            return ""
        if callable(self.unit):
            return self.unit(value)
        writer = _WRITERS.get(self.unit)
        return writer(value) if writer else amount(value, self.unit)

    @property
    def config(self) -> Any:
        """For the browser: a head, a side and a sentence."""
        if self.unit == "bar":
            return st.column_config.ProgressColumn(
                self.head, help=self.about or None, format="percent", min_value=0, max_value=1
            )
        text = self.unit == "text" or self.left
        return st.column_config.Column(
            self.head, help=self.about or None, alignment=None if text else "right"
        )


def draw(frame: pd.DataFrame, columns: Mapping[str, Column], missing: str = NOT_MEASURED) -> None:
    """Show those columns of a frame, in that order; those that it lacks are left out, nulls are `missing`."""
    there = {name: column for name, column in columns.items() if name in frame}
    shown = frame[list(there)].reset_index(drop=True)
    written = {name: column.write for name, column in there.items() if column.unit not in ("text", "bar")}
    st.dataframe(
        shown.style.format(written), hide_index=True, placeholder=missing,
        height="content" if len(shown) <= MOST_ROWS else _TALL,
        column_config={name: column.config for name, column in there.items()},
    )  # fmt: skip

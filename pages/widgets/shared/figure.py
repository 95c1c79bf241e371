"""What every view is made of: the line over a chart or table with its menu, charts, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.words import plural
from pages.widgets.shared.csv import csv_of
from pages.widgets.shared.messages import plain

MOST_ROWS = 24
"""Longer tables scroll."""
_TALL = 640
"""Pixels of a table that scrolls."""
_MOST_LINES = 12
"""Longer SQL scrolls."""


def head(
    words: str,
    *,
    sql: Sequence[str] = (),
    commands: Sequence[str | None] = (),
    reproduce: str = "",
    **frames: pd.DataFrame,
) -> None:
    """The line over a chart, and its menu: the figures as CSV, what they come from, how to get them again.

    `words` may hold names of strangers: no Markdown in it is read. `commands` made the runs that are shown;
    `reproduce` prints the same figures. The first frame names the menu.
    """
    left, menu = st.columns([9, 1], vertical_alignment="center", wrap=False)
    left.caption(plain(words))
    with menu.popover("More", width="stretch", key=f"menu {next(iter(frames))}"):
        for name, frame in frames.items():
            csv_button(f"{name.replace('_', ' ').capitalize()} as CSV", name, frame)
        if sql:
            st.caption("The SQL, to run with `python -m dsocr_core history sql`:")
        for statement in sql:
            st.code(
                statement, language="sql", height=240 if statement.count("\n") > _MOST_LINES else "content"
            )
        if made := list(dict.fromkeys(command for command in commands if command)):
            st.caption(f"{plural(len(made), 'command')} that made these runs:")
            st.code("\n".join(made), language="bash", wrap_lines=True)
        if reproduce:
            st.caption("The same figures on the command line:")
            st.code(reproduce, language="bash", wrap_lines=True)


def csv_button(label: str, name: str, frame: pd.DataFrame) -> None:
    """A download of the frame as `name`.csv, written when it is clicked."""
    st.download_button(
        label, partial(csv_of, frame), f"{name}.csv", "text/csv", on_click="ignore", width="stretch",
        icon=":material/download:", key=f"csv {name}",
    )  # fmt: skip


def table(
    shown: pd.DataFrame,
    left: Sequence[str] | None = None,
    missing: str = "",
    about: Mapping[str, str] | None = None,
) -> None:
    """A table: of figures, aligned right except for the columns in `left`; of texts, where that is None.

    `about` has a sentence for the heads of columns.
    """
    about = about or {}
    right = [] if left is None else [column for column in shown.columns if column not in left]
    st.dataframe(
        shown,
        hide_index=True,
        height="content" if len(shown) <= MOST_ROWS else _TALL,
        placeholder=missing,
        column_config={
            column: st.column_config.Column(
                alignment="right" if column in right else None, help=about.get(column)
            )
            for column in (*right, *(name for name in about if name in shown and name not in right))
        },
    )


def plot(figure: Any, name: str, words: str) -> None:
    """A chart; its only tools are the picture and, after zooming, the way back. `words` say what it shows."""
    st.plotly_chart(
        figure, key=f"chart {name}", width="stretch", alt=words,
        config={
            "displaylogo": False, "modeBarButtons": [["toImage", "resetScale2d"]],
            "toImageButtonOptions": {"format": "png", "scale": 2, "filename": name.replace(" ", "-")},
        },
    )  # fmt: skip

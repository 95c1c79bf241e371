"""What every view of the Timing page is made of: the line over a chart with its menu, charts, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from pages.widgets.shared.csv import box_csv
from pages.widgets.shared.formats import plural

MOST_ROWS = 24
"""Longer tables scroll."""


def head(words: str, sql: Sequence[str], commands: Sequence[str | None] = (), **frames: pd.DataFrame) -> None:
    """The line over a chart, and its menu: the figures as CSV, the SQL behind them, commands of the runs."""
    left, menu = st.columns([9, 1], vertical_alignment="center", wrap=False)
    left.caption(words)
    with menu.popover("More", width="stretch", key=f"timing menu {next(iter(frames))}"):
        for name, frame in frames.items():
            st.download_button(
                f"{name.replace('_', ' ').capitalize()} as CSV", _csv_of(frame), f"{name}.csv", "text/csv",
                on_click="ignore", width="stretch", icon=":material/download:", key=f"timing csv {name}",
            )  # fmt: skip
        st.caption(
            "A picture of a chart: the camera over its right corner. The SQL, as `history sql` takes it:"
        )
        for statement in sql:
            st.code(statement, language="sql", height=240 if statement.count("\n") > 12 else "content")
        known = list(dict.fromkeys(command for command in commands if command))
        if known:
            st.caption(f"{plural(len(known), 'command')} that made these runs:")
            st.code("\n".join(known), language="bash", wrap_lines=True)


def _csv_of(frame: pd.DataFrame) -> Callable[[], bytes]:
    """Made when it is asked for; no cell starts a formula."""
    return lambda: box_csv(frame)


def table(shown: pd.DataFrame, left: Sequence[str]) -> None:
    """A table of figures, aligned right except for the columns named."""
    st.dataframe(
        shown,
        hide_index=True,
        height="content" if len(shown) <= MOST_ROWS else 640,
        placeholder="",
        column_config={
            column: st.column_config.Column(alignment="left" if column in left else "right")
            for column in shown.columns
        },
    )


def plot(figure: object, name: str, words: str) -> None:
    """A chart; its only tools are the picture and, after zooming, the way back."""
    st.plotly_chart(
        figure, key=f"timing chart {name}", width="stretch", alt=words,
        config={
            "displaylogo": False, "modeBarButtons": [["toImage", "resetScale2d"]],
            "toImageButtonOptions": {"format": "png", "scale": 2, "filename": f"timing-{name}"},
        },
    )  # fmt: skip

"""What every tab of the FLOPs page is made of: the line over a chart with its menu, charts, tables."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st


def head(words: str, command: str, **frames: pd.DataFrame) -> None:
    """The line over a chart and its menu: what is shown as CSV, and the call that gives the same figures."""
    left, menu = st.columns([9, 1], vertical_alignment="center", wrap=False)
    left.caption(words)
    with menu.popover("More", width="stretch", key=f"menu {next(iter(frames))}"):
        for name, frame in frames.items():
            st.download_button(
                f"{name.replace('_', ' ').capitalize()} as CSV", _csv_of(frame), f"{name}.csv", "text/csv",
                on_click="ignore", width="stretch", icon=":material/download:", key=f"csv {name}",
            )  # fmt: skip
        st.caption("The same figures on the command line:")
        st.code(command, language="bash", wrap_lines=True)


def _csv_of(frame: pd.DataFrame) -> Callable[[], bytes]:
    """Made when it is asked for."""
    return lambda: str(frame.to_csv(index=False)).encode()


def table(shown: pd.DataFrame, left_columns: int = 1) -> None:
    """A table of figures, aligned right after its first columns."""
    st.dataframe(
        shown,
        hide_index=True,
        height="content" if len(shown) <= 24 else 780,
        placeholder="",
        column_config={
            column: st.column_config.Column(alignment="left" if place < left_columns else "right")
            for place, column in enumerate(shown.columns)
        },
    )


def plot(figure: object, name: str, words: str) -> None:
    st.plotly_chart(figure, key=f"chart {name}", width="stretch", config={"displayModeBar": False}, alt=words)

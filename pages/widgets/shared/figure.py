"""Parts of every view: the page's name, tabs, the line over a chart or table with its menu, and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from pages.widgets.components import watch_page
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import csv_of
from pages.widgets.shared.url_state import LinkedState

NAMES = {
    "compare": "Compare", "review": "Review", "timing": "Timing", "runs": "Runs", "flops": "FLOPs and bounds",
}  # fmt: skip


def heading(state: LinkedState) -> None:
    """Draw the page's name, and notes on its link's missing values."""
    with st.container(key="page"):
        watch_page(f"{state.page} fields")
    with st.container(horizontal=True, vertical_alignment="center", key="heading"):
        st.html(f"<div class='dsocr-heading'><h1>{NAMES[state.page]}</h1></div>", width="content")
    with st.container():  # with or without them, what follows keeps its place on the page
        state.show_notes()


def tabs(drawers: Mapping[str, Callable[[], None]], state: LinkedState, name: str = "tab") -> None:
    """Tabs by their names, the open one a parameter of the page; only that one is drawn."""
    box = f"{state.key(name)} open"
    st.session_state[box] = state.value(name)
    there = st.tabs(list(drawers), key=box, on_change=lambda: state.put(name, st.session_state[box]))
    for tab, drawer in zip(there, drawers.values(), strict=True):
        if tab.open:
            with tab:
                drawer()


def opened(label: str, key: str, drawer: Callable[[], None], expanded: bool = False) -> None:
    """A part that is drawn once it is opened."""
    more = st.expander(label, expanded, key=key, on_change="rerun")
    if more.open:
        with more:
            drawer()


def head(words: str, *, sql: Sequence[str] = (), reproduce: str = "", **frames: pd.DataFrame) -> None:
    """The line over a chart, and its menu: the figures as CSV, what they come from, how to get them again.

    `words` may hold names of strangers: no Markdown in it is read. `reproduce` is a command that prints the
    same figures. The first frame names the menu.
    """
    left, menu = st.columns([9, 1], vertical_alignment="center", wrap=False)
    left.caption(plain(words))
    with menu.popover("More", width="stretch", key=f"menu {next(iter(frames))}"):
        for name, frame in frames.items():
            label, make = f"{name.replace('_', ' ').capitalize()} as CSV", partial(csv_of, frame)
            st.download_button(
                label, make, f"{name}.csv", "text/csv", on_click="ignore", width="stretch", key=f"csv {name}",
                icon=":material/download:",
            )  # fmt: skip
        if sql:
            st.caption("The SQL, to run with `python -m dsocr_core history sql`:")
        for statement in sql:
            st.code(statement, language="sql", height=240)
        if reproduce:
            st.caption("The same figures on the command line:")
            st.code(reproduce, language=None, wrap_lines=True)


def plot(figure: Any, name: str, words: str) -> None:
    """A chart; its only tools are the picture and, after zooming, the way back. `words` say what it shows."""
    st.plotly_chart(
        figure, key=f"chart {name}", width="stretch", alt=words,
        config={
            "displaylogo": False, "modeBarButtons": [["toImage", "resetScale2d"]],
            "toImageButtonOptions": {"format": "png", "scale": 2, "filename": name.replace(" ", "-")},
        },
    )  # fmt: skip

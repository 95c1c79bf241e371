"""Timing: what became slower between which commits, whether it is real, and in which kernels."""

from __future__ import annotations

from functools import partial

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from pages.widgets.shared import figure, resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import go, part
from pages.widgets.timing import changes, kernels, sidebar
from pages.widgets.timing.address import STATE, VIEWS


def page() -> None:
    STATE.read()
    figure.heading(STATE)
    try:
        history = resources.history()
        with st.sidebar:
            chosen = sidebar.draw(history)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        STATE.write()
    else:
        part(STATE.read, partial(_draw, chosen), STATE.write)


def _draw(chosen: sidebar.RunSelection) -> None:
    if chosen.every.empty:
        st.markdown(
            "There are no runs yet: read a page on Compare, or import runs of other programs on Runs."
        )
        if st.button("Go to Compare", type="primary", key="timing compare"):
            go("compare")
        return
    drawers = (partial(changes.draw, chosen), partial(kernels.draw, chosen))
    figure.tabs(dict(zip(VIEWS, drawers, strict=True)), STATE, "view")


page()

"""Timing: what became slower between which commits, whether it is real, and in which kernels."""

from __future__ import annotations

from functools import partial

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from pages.widgets.shared import figure, heading, navigation, resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import part, refused
from pages.widgets.timing import address, changes, kernels, sidebar


def page() -> None:
    heading.draw("timing")
    address.read()
    if refused():
        return
    try:
        history = resources.history()
        with st.sidebar:
            chosen = sidebar.draw(history)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        address.write()
    else:
        part(address.read, partial(_draw, chosen), address.write)


def _draw(chosen: sidebar.RunSelection) -> None:
    if chosen.every.empty:
        st.markdown(
            "There are no runs yet: read a page on Compare, or import runs of other programs on Runs."
        )
        if st.button("Go to Compare", type="primary", key="timing compare"):
            navigation.to_compare()
        return
    drawers = (partial(changes.draw, chosen), partial(kernels.draw, chosen))
    figure.tabs(dict(zip(address.VIEWS, drawers, strict=True)), address.key("view"))


page()

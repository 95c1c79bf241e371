"""The sidebar of the Runs page: which runs are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dsocr_core.runs.history import History
from pages.widgets.runs import address
from pages.widgets.runs.address import LISTS, STATE, VIEWS, key, value
from pages.widgets.shared import new_runs, resources, run_filters


def draw(history: History) -> Mapping[str, Any]:
    """Draw the choice of the view, and a list's filters; returns these as parameters of the query `runs`."""
    st.segmented_control(
        "View", VIEWS, required=True, key=key("view"), label_visibility="collapsed", width="stretch"
    )
    new_runs.refresh_button(history)
    if value("view") not in LISTS:
        return {}
    run_filters.draw(STATE, history)
    st.toggle(
        "Examples", value=True, key=resources.EXAMPLES, persist_state="session",
        help="The runs that come with the project, tagged example: on every page, or on none.",
    )  # fmt: skip
    if address.filtered():
        st.button("Clear the filters", on_click=address.clear_filters, key="runs clear", width="stretch")
    return run_filters.parameters(STATE)

"""The sidebar of the Runs page: which runs are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dsocr_core.runs.store import History
from pages.widgets.runs import address
from pages.widgets.runs.address import LISTS, NO_GROUP, PROFILED, STATE, VIEWS, key, put, value
from pages.widgets.runs.tables import COLUMNS
from pages.widgets.shared import new_runs, resources, run_filters

_PROFILED_WORDS = {"any": "All", "no": "Unprofiled", "yes": "Profiled"}


def draw(history: History) -> Mapping[str, Any]:
    """Draw the choice of the view, and a list's filters; returns these as parameters of the query `runs`."""
    st.segmented_control(
        "View", VIEWS, required=True, key=key("view"), label_visibility="collapsed", width="stretch"
    )
    new_runs.refresh_button(history)
    if value("view") not in LISTS:
        return {}
    st.text_input("Search", key=key("text"), placeholder="id, command, note or tag")
    there, _ = history.query("filter_values")
    run_filters.draw_first(STATE, there)
    more = run_filters.draw_more(STATE, there, "runs", others=int(value("profiled") != "any"))
    if more.open:
        more.segmented_control(
            "Profiler", list(PROFILED), required=True, key=key("profiled"), width="stretch",
            format_func=_PROFILED_WORDS.__getitem__,
            help="A profiler's overhead is in the times of such runs.",
        )  # fmt: skip
    columns = st.expander(
        "Columns", expanded=bool(value("columns")), key="runs more columns", on_change="rerun"
    )
    if columns.open:
        with columns:
            put("columns", [column for column in value("columns") if column in COLUMNS])
            st.multiselect(
                "Columns", COLUMNS, key=key("columns"), placeholder="the usual ones",
                label_visibility="collapsed",
            )  # fmt: skip
    st.selectbox("Group by", [NO_GROUP, *COLUMNS], key=key("group"))
    st.toggle(
        "Examples", value=True, key=resources.EXAMPLES, persist_state="session",
        help="The runs that come with the project, tagged example: on every page, or on none.",
    )  # fmt: skip
    if address.filtered():
        st.button("Clear the filters", on_click=address.clear_filters, key="runs clear", width="stretch")
    return parameters()


def parameters() -> dict[str, Any]:
    """Give what the filters say, as parameters of the query `runs`."""
    return run_filters.parameters(STATE) | {
        "text": value("text").strip() or None,
        "profiled": PROFILED[value("profiled")],
    }

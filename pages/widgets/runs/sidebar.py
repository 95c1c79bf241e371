"""The sidebar of the Runs page: which runs are listed, and the import of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dsocr_core.runs.history import History
from pages.widgets.runs import address, import_runs
from pages.widgets.runs.address import STATE, put, value
from pages.widgets.shared import new_runs, resources, run_filters


def draw(history: History) -> Mapping[str, Any]:
    """Draw the filters; returns these as parameters of the query `runs`."""
    new_runs.refresh_button(history)
    asked = st.button("Import runs", icon=":material/upload:", key="runs import open", width="stretch")
    if value("importing") or asked:
        put("importing", False)
        import_runs.dialog(history)
    run_filters.draw(STATE, history)
    # The runs that come with the project, on every page or on none.
    st.toggle("Examples", value=True, key=resources.EXAMPLES, persist_state="session")
    if address.filtered():
        st.button("Clear the filters", on_click=address.clear_filters, key="runs clear", width="stretch")
    return run_filters.parameters(STATE)

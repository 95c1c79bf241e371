"""Address of the Runs page: the filters, the chosen groups and runs, and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from pages.widgets.shared import run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("", "Busy machine", "Profiled", "Compared", "Trash")
"""Runs that alone are listed; "" for all but those in the trash."""
GROUPS = ("setting", "engine and card", "commit", "model")
TABS = ("Settings", "Tags and notes", "Reproduce")
OPEN_IMPORT = "runs import asked"
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter("", VIEWS, widget=False, former=(("Runs", ""), ("Import", ""))),
    **run_filters.PARAMETERS,
    "by": Parameter(GROUPS[0], GROUPS),
    "group": Parameter([], widget=False),
    "price": Parameter(0.0, (), 0, 1e6),
    "runs": Parameter([], widget=False),
    "baseline": Parameter("", widget=False),
    "tab": Parameter(TABS[0], TABS, former=(("Environment", TABS[0]),)),
    "all": Parameter(False),
}
STATE = LinkedState("runs", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for the import."""
    if STATE.read() is not None:
        st.session_state[OPEN_IMPORT] = True


def clear_filters() -> None:
    STATE.clear(*run_filters.FILTERS, "view", "group")


def filtered() -> bool:
    return STATE.used(*run_filters.FILTERS, "group") > 0

"""What the address of the Timing page holds: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from pages.widgets.shared import navigation, run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter, linked

VIEWS = ("Stages", "Trend", "A against B", "Kernels")
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # which runs are offered
    **{name: Parameter([]) for name in run_filters.NAMES},
    "profiled": Parameter(False),
    "contended": Parameter(False),
    "since": Parameter(None),
    "until": Parameter(None),
    # Stages
    "runs": Parameter([], view="Stages"),
    "every": Parameter(False, view="Stages"),
    "chart": Parameter("medians", ("medians", "spread"), view="Stages"),
    # Trend
    "stage": Parameter("decode", view="Trend"),
    "trend_backend": Parameter("", view="Trend"),
    "drawn": Parameter("newest", ("newest", "all"), view="Trend"),
    "page": Parameter("", view="Trend"),
    "axis": Parameter("run", ("run", "time"), view="Trend"),
    # A against B
    "a": Parameter("", view="A against B"),
    "b": Parameter("", view="A against B"),
    "backend_a": Parameter("", view="A against B"),
    "backend_b": Parameter("", view="A against B"),
    "neutral": Parameter(2.0, (), 0, 50, view="A against B"),
    "of": Parameter("decode", view="A against B"),
    # Kernels
    "run": Parameter("", view="Kernels"),
    "part": Parameter("", view="Kernels"),
    "top": Parameter(15, (), 5, 50, view="Kernels"),
    "rows": Parameter("kernels", ("kernels", "launches"), view="Kernels"),
    "plane": Parameter("roofline", ("roofline", "light"), view="Kernels"),
}
STATE = LinkedState("timing", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write


def chosen(name: str) -> bool:
    """Whether the reader, or the link that was followed, has chosen this one; else the page chooses."""
    return name in st.session_state["timing chosen"]


def choose(*names: str) -> None:
    """Note that the reader has chosen these."""
    st.session_state["timing chosen"] |= {*names}


def read() -> None:
    """Make every parameter have its value, before any widget is drawn."""
    if "timing chosen" not in st.session_state:
        st.session_state["timing chosen"] = {*linked(PARAMETERS)}
    STATE.read()
    if (asked := navigation.taken_request("timing")) is not None:
        put("view", VIEWS[0])
        put("runs", asked["runs"])
        for side in ("a", "b"):
            put(side, "")
        st.session_state["timing chosen"] -= {"a", "b"}
        choose("runs")

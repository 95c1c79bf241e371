"""What the address of the Timing page holds: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from pages.widgets.shared.url_state import LinkedState, Parameter, linked

VIEWS = ("Stages", "Trend", "A against B", "Kernels")
FILTERS = ("backend", "engine", "gpu", "preset", "dtype", "source", "commit", "tag")
"""Lists of values that runs may have, an empty one standing for any. The history's own names end in s."""
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # which runs are offered
    **{name: Parameter([]) for name in FILTERS},
    "profiled": Parameter(False),
    "since": Parameter(None),
    "until": Parameter(None),
    # Stages
    "runs": Parameter([], view="Stages"),
    "every": Parameter(False, view="Stages"),
    # Trend
    "stage": Parameter("decode", view="Trend"),
    "trend_backend": Parameter("", view="Trend"),
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
}
_STATE = LinkedState("timing", PARAMETERS)
key, value, put, write = _STATE.key, _STATE.value, _STATE.put, _STATE.write


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
    _STATE.read()

"""The choice of a backend on the FLOPs page, among those that there are."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dsocr_core.records import BackendName
from pages.widgets.flops.address import key, text
from pages.widgets.shared.labels import first_of_ours, short_names


def draw(backends: Sequence[BackendName]) -> None:
    """A choice of one; until its reader chooses, or where a link names one that is not there, ours."""
    if text("backend") not in backends:
        st.session_state[key("backend")] = first_of_ours(backends)
    st.segmented_control(
        "Backend", backends, required=True, key=key("backend"), width="stretch",
        format_func=short_names(backends, 24).__getitem__,
    )  # fmt: skip

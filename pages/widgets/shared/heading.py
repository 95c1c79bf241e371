"""Head of every page: its name."""

from __future__ import annotations

import streamlit as st

from pages.widgets.components.page import watch_page
from pages.widgets.shared.url_state import LinkedState

NAMES = {
    "compare": "Compare",
    "review": "Review",
    "timing": "Timing",
    "runs": "Runs",
    "flops": "FLOPs and bounds",
}


def draw(state: LinkedState) -> None:
    """Draw it, and what the page's link asks for and is not there."""
    page = state.page
    with st.container(key="page"):
        watch_page(f"{page} fields")
    with st.container(horizontal=True, vertical_alignment="center", key="heading"):
        st.html(f"<div class='dsocr-heading'><h1>{NAMES[page]}</h1></div>", width="content")
    state.show_notes()

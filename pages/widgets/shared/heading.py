"""Head of every page: its name."""

from __future__ import annotations

from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.widgets.components.page import watch_page

NAMES = {
    "compare": "Compare",
    "review": "Review",
    "timing": "Timing",
    "runs": "Runs",
    "flops": "FLOPs and bounds",
}


def draw(page: str) -> DeltaGenerator:
    """Draw it for the page of that script; returns a place in its line."""
    with st.container(key="page"):
        watch_page(f"{page} fields")
    with st.container(horizontal=True, vertical_alignment="center", key="heading"):
        st.html(f"<div class='dsocr-heading'><h1>{escape(NAMES[page])}</h1></div>", width="content")
        return st.container(key=f"beside {page}")

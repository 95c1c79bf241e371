"""Small type, thin lines: the style of the strips that Streamlit has no element for."""

from __future__ import annotations

from pathlib import Path

import streamlit as st


def apply_style() -> None:
    """Put the project's style sheet on the page. It takes no room on it."""
    st.html(Path(__file__).with_name("style.css"))

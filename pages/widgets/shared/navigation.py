"""The ways from page to page, and into a page that was opened by its link."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager


def enter_by_app() -> None:
    """Start over through `app.py` on the first visit of a fresh server.

    Until `app.py` has run once, Streamlit takes the folder `pages/` for the navigation and runs the page
    without it.
    """
    if PagesManager.uses_pages_directory:
        PagesManager.uses_pages_directory = False
        st.rerun()


def taken_request(page: str) -> dict[str, str] | None:
    """What another page asked this one to show, once; None when nothing."""
    request: dict[str, str] | None = st.session_state.pop(f"{page} request", None)
    return request


def to_compare(sample: str = "", preset: str = "") -> None:
    """Open Compare; on a sample read with a preset, when these are given."""
    if sample:
        st.session_state["compare request"] = {"page": sample, "preset": preset}
    st.switch_page("pages/compare.py")


def to_review(key: str) -> None:
    """Open Review at the beginning of a review."""
    st.session_state["review request"] = {"review": key}
    st.switch_page("pages/review.py")


def to_import() -> None:
    """Open Runs where runs of elsewhere are imported."""
    st.session_state["runs request"] = {"view": "Import"}
    st.switch_page("pages/runs.py")

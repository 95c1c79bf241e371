"""The way into a page that was opened by its link."""

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

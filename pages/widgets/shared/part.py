"""A part of a page that its own widgets draw again alone: a tab is chosen without drawing the rest anew."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import streamlit as st

from dsocr_core.errors import DsocrError
from pages.widgets.shared.messages import show_error


@st.fragment
def draw(read: Callable[[], None], drawer: Callable[[], None], write: Callable[[], None]) -> None:
    """Draw between reading the page's state and writing its address.

    The drawer has what the page found in its last whole run; it may not draw into the sidebar.
    """
    read()
    try:
        drawer()
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    write()

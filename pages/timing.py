"""Timing: what every stage takes, run after run, and whether a difference is real."""

from __future__ import annotations

from functools import partial

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from pages.widgets.shared import heading, resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import part, refused
from pages.widgets.timing import address, sidebar, views


def page() -> None:
    heading.draw("timing")
    address.read()
    if refused():
        return
    try:
        history = resources.history()
        with st.sidebar:
            shown = sidebar.draw(history)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        address.write()
    else:
        part(address.read, partial(views.draw, shown), address.write)


page()

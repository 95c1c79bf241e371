"""FLOPs and bounds: what a page costs by arithmetic, beside what was counted and what was timed."""

from __future__ import annotations

from functools import partial

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from pages.widgets.flops import address, sidebar, views
from pages.widgets.flops.selection import NotRecordedError
from pages.widgets.shared import heading
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.url_state import part, refused


def page() -> None:
    heading.draw("flops")
    address.read()
    if refused():
        return
    with st.sidebar:
        choose = sidebar.draw()
    try:
        selection = choose()
    except NotRecordedError as nothing:
        st.markdown(plain(str(nothing)))
        if st.button("Go to Compare", type="primary", key="flops compare"):
            sidebar.to_compare()
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    else:
        part(address.read, partial(views.draw, selection), address.write)
        return
    address.write()


page()

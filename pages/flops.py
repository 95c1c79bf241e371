"""FLOPs and bounds: what a page costs by arithmetic, beside what was counted and what was timed."""

from __future__ import annotations

import duckdb
import streamlit as st

from dsocr_core.errors import DsocrError
from pages.widgets import flop_address as address
from pages.widgets import flop_sidebar as sidebar
from pages.widgets import flop_views as views
from pages.widgets.flop_look import NotRecordedError
from pages.widgets.messages import plain, show_error
from pages.widgets.navigation import enter_by_app
from pages.widgets.style import apply_style


def page() -> None:
    enter_by_app()
    apply_style()
    address.read()
    with st.sidebar:
        choose = sidebar.draw()
    try:
        look = choose()
    except NotRecordedError as nothing:
        st.markdown(plain(str(nothing)))
        if st.button("Go to Compare", type="primary", key="flops compare"):
            sidebar.to_compare()
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    else:
        views.draw(look)
    address.write()


page()

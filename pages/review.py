"""Review: a recorded run page by page, worst first, with the verdicts of its reviewers."""

from __future__ import annotations

import duckdb
import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.history.store import History
from dsocr_core.review.keys import parse_key
from pages.widgets.review import address
from pages.widgets.review import position as places
from pages.widgets.review import sidebar as review_sidebar
from pages.widgets.review import tabs as review_tabs
from pages.widgets.review import view as review_view
from pages.widgets.review.address import value
from pages.widgets.shared import resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.navigation import enter_by_app
from pages.widgets.shared.style import apply_style


def page() -> None:
    enter_by_app()
    apply_style()
    address.read()
    try:
        _draw(resources.history())
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    address.write()


def _draw(history: History) -> None:
    places.take_actions()
    runs = review_sidebar.runs_of(history)
    if not value("review"):
        address.put("review", runs.newest)
    with st.sidebar:
        review_sidebar.choose_runs(history, runs)
    if not value("review"):
        review_sidebar.nothing(runs)
        return
    parse_key(value("review"))
    review = resources.review(value("review"))
    place = places.find(review)
    with st.sidebar:
        review_sidebar.draw(place)
    if place.page is None:
        _none_passes()
        return
    if value("page") != place.page.name:
        address.show_page(place.page.name)
    sight = review_view.Sight(review, place.page)
    review_view.draw(place, sight)
    review_tabs.draw(sight)
    review_view.prepare(place, resources.ahead())


def _none_passes() -> None:
    st.markdown("No page passes the filters.")
    st.button("Clear the filters", type="primary", key="review clear all", on_click=address.clear_filters)


page()

"""Review: a recorded run page by page, worst first, with the verdicts of its reviewers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.review.document import one_run_words
from dsocr_core.review.keys import parse_key
from dsocr_core.runs.history import History
from pages.widgets.review import address, grid, position, sidebar, tabs, view
from pages.widgets.review.address import value
from pages.widgets.shared import heading, resources
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import refused

if TYPE_CHECKING:
    from dsocr_core.review.review import Review


def page() -> None:
    heading.draw("review")
    address.read()
    if refused():
        return
    try:
        _draw(resources.history())
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    address.write()


def _draw(history: History) -> None:
    position.take_actions()
    runs = sidebar.runs_of(history)
    if not value("review"):
        address.put("review", runs.usual)
    with st.sidebar:
        sidebar.choose_runs(history, runs)
    if not value("review"):
        sidebar.nothing(runs)
        return
    try:
        review = _opened(value("review"))
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        if runs.usual not in ("", value("review")):
            newest = partial(address.open_review, runs.usual)
            st.button("Open the newest run", type="primary", key="review newest", on_click=newest)
        return
    here = position.find(review)
    with st.sidebar:
        sidebar.draw(here)
    if value("view") == "Grid":
        grid.draw(here)
        return
    if value("page") and value("page") not in {page.name for page in review.pages}:
        show_error(f"this review has no page {value('page')[:100]}")
        st.button(
            "Open its first page", type="primary", key="review first", on_click=partial(address.show_page, "")
        )
        return
    if here.page is None:
        _none_passes(review)
        return
    if value("page") != here.page.name:
        address.show_page(here.page.name)
    shown = view.shown_of(review, here.page)
    view.draw(here, shown)
    tabs.draw(shown)
    view.prepare(here, resources.prefetcher())


def _opened(key: str) -> Review:
    """Raises DsocrError for a key that names no review, or a review that cannot be opened."""
    parse_key(key)
    return resources.review(key)


def _none_passes(review: Review) -> None:
    if not address.used_filters() and all(page.in_one_run for page in review.pages):
        st.markdown(
            f"These two runs share no page: {one_run_words(review.pages)}. Choose another run on the left."
        )
        return
    st.markdown("No page passes the filters.")
    st.button("Clear the filters", type="primary", key="review clear all", on_click=address.clear_filters)


page()
resources.warm_up()

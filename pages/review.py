"""Review: a recorded run page by page, worst first, with the verdicts of its reviewers."""

from __future__ import annotations

from functools import partial

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.review import address, grid, queue, runs, view
from pages.widgets.review.address import STATE, value
from pages.widgets.shared import figure, resources, shown_runs
from pages.widgets.shared.messages import show_error


def page() -> None:
    STATE.read(address.first)
    figure.heading(STATE)
    try:
        _draw(resources.history())
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    STATE.write()


def _draw(history: History) -> None:
    queue.take_actions()
    with st.sidebar:
        shown_runs.watch(history)
    found = runs.runs_of(history)
    if not value("review"):
        STATE.choose("review", found.usual)
    with st.sidebar:
        runs.choose(found)
    if not value("review"):
        runs.nothing(found)
        return
    try:
        review = resources.review(value("review"))
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
        if found.usual not in ("", value("review")):
            newest = partial(address.open_review, found.usual)
            st.button("Open the newest run", type="primary", key="review newest", on_click=newest)
        return
    here = queue.queue_of(review)
    if not value("page"):
        grid.draw(here)
    elif here.page is None:
        show_error(f"this review has no page {value('page')[:100]}")
        st.button("All pages", type="primary", key="review first", on_click=partial(STATE.show_page, ""))
    else:
        view.draw(here, here.page)
        view.prepare(here)


page()
resources.warm_up()

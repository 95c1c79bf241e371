"""Runs: every run that was kept or imported, found, compared, marked, moved and made again."""

from __future__ import annotations

import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.history.store import History
from pages.widgets.runs import address, parts
from pages.widgets.runs import import_runs as run_import
from pages.widgets.runs import list as run_list
from pages.widgets.runs import sidebar as run_sidebar
from pages.widgets.runs.address import VIEWS, key, value
from pages.widgets.runs.tables import problem_table
from pages.widgets.shared import new_runs as run_news
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
    except DsocrError as error:
        show_error(error)
    address.write()


def _draw(history: History) -> None:
    seen = run_news.seen(history)
    with st.sidebar:
        filters = run_sidebar.draw(history)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.segmented_control("View", VIEWS, required=True, key=key("view"), label_visibility="collapsed")
        run_news.refresh_button(history)
    if value("view") == "Import":
        run_import.draw(history)
    else:
        trashed = value("view") == "Trash"
        runs, sql = history.query("runs", trashed=trashed, **filters)
        every = history.runs(trashed=trashed)
        run_list.draw(
            history,
            runs[runs["run_id"].isin(seen)].reset_index(drop=True),
            int(every["run_id"].isin(seen).sum()),
            sql,
        )
    _problems(history)


def _problems(history: History) -> None:
    if history.problems:
        table = problem_table(history.problems)
        with st.expander(f"Left out: {len(table)} that could not be read", icon=":material/error:"):
            parts.head(f"In {history.storage.location}", left_out=table)
            parts.table(table)


page()

"""Runs: every recorded or imported run, found, compared, tagged, moved and made again."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.store import History
from pages.widgets.runs import address, cluster_run, import_runs, run_list, sidebar
from pages.widgets.runs.address import value
from pages.widgets.runs.tables import problem_table
from pages.widgets.shared import figure, heading, new_runs, resources, table
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import refused


def page() -> None:
    head = heading.draw("runs")
    address.read()
    if refused():
        return
    try:
        _draw(resources.history(), head)
    except DsocrError as error:
        show_error(error)
    address.write()


def _draw(history: History, head: DeltaGenerator) -> None:
    shown = new_runs.shown(history)
    for name in ("runs", "baseline"):
        if address.STATE.missing(name, shown):
            address.STATE.say_missing(name, "run")
            return
    with st.sidebar:
        filters = sidebar.draw(history)
    if value("view") == "Import":
        import_runs.draw(history)
    elif value("view") == "Cluster":
        cluster_run.draw()
    else:
        trashed = value("view") == "Trash"
        runs, sql = history.query("runs", trashed=trashed, **filters)
        every = history.runs(trashed=trashed)
        run_list.draw(
            history,
            runs[runs["run_id"].isin(shown)].reset_index(drop=True),
            int(every["run_id"].isin(shown).sum()),
            sql,
            head,
        )
    _problems(history)


def _problems(history: History) -> None:
    if history.problems:
        found = problem_table(history.problems)
        with st.expander(f"Left out: {len(found)} that could not be read", icon=":material/error:"):
            figure.head(f"In {history.storage.location}", left_out=found)
            table.draw(found)


page()

"""Runs: every recorded or imported run, found, compared, tagged, moved and made again."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.runs import address, import_runs, run_list, sidebar
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
    else:
        trashed = value("view") == "Trash"
        there, asked = frozenset(shown), {"trashed": trashed, **filters}
        found = resources.held(
            "runs", history.state, (there, repr(asked)), lambda: _found(history, there, asked)
        )
        run_list.draw(history, *found, head)
    _problems(history)


def _found(history: History, there: frozenset[str], asked: dict[str, Any]) -> tuple[pd.DataFrame, int, str]:
    """Runs that pass the filters, of how many, and the SQL of the question."""
    runs, sql = history.query("runs", **asked)
    every = history.runs(trashed=asked["trashed"])
    runs = runs[runs["run_id"].isin(there)].reset_index(drop=True)
    return runs, int(every["run_id"].isin(there).sum()), sql


def _problems(history: History) -> None:
    if history.problems:
        found = problem_table(history.problems)
        with st.expander(f"Left out: {len(found)} that could not be read", icon=":material/error:"):
            figure.head(f"In {history.storage.location}", left_out=found)
            table.draw(found)


page()

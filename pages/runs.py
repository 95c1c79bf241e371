"""Runs: every recorded or imported run, found, compared, tagged, moved and made again."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.review.verdicts import verdict_counts
from dsocr_core.runs.history import History
from pages.widgets.runs import baseline, overview, run_list, sidebar
from pages.widgets.runs.address import STATE, value
from pages.widgets.runs.tables import Listed, listed, problem_table
from pages.widgets.shared import figure, heading, new_runs, resources, table
from pages.widgets.shared.messages import show_error


def page() -> None:
    STATE.read()
    heading.draw(STATE)
    try:
        _draw(resources.history())
    except DsocrError as error:
        show_error(error)
    STATE.write()


def _draw(history: History) -> None:
    shown = new_runs.shown(history)
    for name in ("runs", "baseline"):
        STATE.settle(name, shown)
    with st.sidebar:
        filters = sidebar.draw(history)
    asked = {"trashed": value("view") == "Trash", **filters}
    there = frozenset(shown)
    runs, sql = resources.held(
        "runs", history.state, (there, repr(asked)), lambda: _found(history, there, asked)
    )
    every = history.runs(trashed=None)
    every = every[every["run_id"].isin(there)]
    trashed = every["trashed"].astype(bool)
    masks = {
        "Busy machine": every["contended"].astype(bool) & ~trashed,
        "Profiled": every["profiled"].astype(bool) & ~trashed,
        "Compared": every["compared"].notna() & ~trashed, "Trash": trashed,
    }  # fmt: skip
    run_list.last_move(history)
    if (view := value("view")) in masks:
        runs = runs[runs["run_id"].isin(set(every.loc[masks[view], "run_id"]))].reset_index(drop=True)
    overview.chips({name: int(mask.sum()) for name, mask in masks.items()})
    if not len(runs):
        run_list.nothing(view, int((~trashed).sum()))
    else:
        of = (tuple(runs["run_id"]), value("baseline"), value("by"))
        found = resources.held("runs table", history.state, of, lambda: _listed(history, runs))
        if view != "Trash":
            overview.draw(found, int((~trashed).sum()), [sql])
        run_list.draw(history, runs, found)
    _problems(history)


def _found(history: History, there: frozenset[str], asked: dict[str, Any]) -> tuple[pd.DataFrame, str]:
    """Runs that pass the filters, and the SQL of the question."""
    runs, sql = history.query("runs", **asked)
    return runs[runs["run_id"].isin(there)].reset_index(drop=True), sql


def _listed(history: History, runs: pd.DataFrame) -> Listed:
    """The runs, their groups, and the baseline beside them."""
    pace, _ = history.query("pace", run_ids=list(runs["run_id"]))
    pinned = baseline.pinned(history.runs())
    against = baseline.against(history, pinned, pace)
    return listed(runs, value("by"), verdict_counts(history), pace, against, pinned)


def _problems(history: History) -> None:
    if history.problems:
        found = problem_table(history.problems)
        with st.expander(f"Left out: {len(found)} that could not be read", icon=":material/error:"):
            figure.head(f"In {history.storage.location}", left_out=found)
            table.draw(found)


page()

"""Runs: every recorded or imported run, found, compared, tagged, moved and made again."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.runs import import_runs, overview, run_list
from pages.widgets.runs.address import NARROWING, STATE, put, value
from pages.widgets.runs.overview import listed
from pages.widgets.shared import figure, resources, shown_runs, table
from pages.widgets.shared.messages import show_error


def page() -> None:
    STATE.read()
    figure.heading(STATE)
    try:
        _draw(resources.history())
    except DsocrError as error:
        show_error(error)
    STATE.write()


def _draw(history: History) -> None:
    with st.sidebar:
        asked = {"trashed": value("view") == "Trash", **_sidebar(history)}
    STATE.settle("runs", set(history.run_ids()))
    runs, sql = resources.cached("runs", history.state, repr(asked), lambda: history.query("runs", **asked))
    every = resources.cached("all runs", history.state, None, lambda: history.runs(trashed=None))
    trashed = every["trashed"].astype(bool)
    masks = {
        "Busy machine": every["contended"].astype(bool) & ~trashed,
        "Profiled": every["profiled"].astype(bool) & ~trashed,
        "Compared": every["compared"].notna() & ~trashed, "Trash": trashed,
    }  # fmt: skip
    with st.container():  # with or without a move, what follows keeps its place on the page
        run_list.last_move(history)
    if (view := value("view")) in masks:
        runs = runs[runs["run_id"].isin(set(every.loc[masks[view], "run_id"]))].reset_index(drop=True)
    overview.chips({name: int(mask.sum()) for name, mask in masks.items()})
    if not len(runs):
        run_list.nothing(view, int((~trashed).sum()))
    else:
        run_ids = list(runs["run_id"])
        found = resources.cached(
            "runs table", history.state, (tuple(run_ids), value("by")),
            lambda: listed(runs, value("by"), history.query("pace", run_ids=run_ids)[0]),
        )  # fmt: skip
        if view != "Trash":
            overview.draw(found, int((~trashed).sum()), [sql])
        run_list.draw(history, runs, found)
    if problems := history.problems:
        left_out = pd.DataFrame({"entry": [*problems], "reason": [*problems.values()]}, dtype="str")
        with st.expander(f"Left out: {len(left_out)} that could not be read", icon=":material/error:"):
            figure.head(f"In {history.storage.location}", left_out=left_out)
            table.draw(left_out)


def _sidebar(history: History) -> dict[str, Any]:
    """The filters, and the import of other runs; gives what they say."""
    shown_runs.watch(history)
    asked = st.button("Import runs", icon=":material/upload:", key="runs import open", width="stretch")
    if value("importing") or asked:
        put("importing", False)
        import_runs.dialog(history)
    filters = shown_runs.filters(STATE, history, NARROWING)
    # The runs that come with the project, on every page or on none.
    st.toggle("Examples", value=True, key=resources.EXAMPLES, persist_state="session")
    return filters


page()

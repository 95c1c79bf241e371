"""Runs that a page shows: those that came or went since are looked for, and filters narrow them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import short_names
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.resources import cached
from pages.widgets.shared.url_state import LinkedState, Parameter
from pages.widgets.streamlit_mends import rerun_page

_POLL_S = 5
"""Seconds after which the storage is asked what came and went: a listing of a folder where nothing did."""
_REST = 3
"""Times as long as a page was drawn that it stands: it can be read while runs come in all the time."""
_WORDS = {"backend": "Backend", "gpu": "GPU", "commit": "Commit", "tag": "Tag"}
FILTERS = tuple(_WORDS)
"""Lists of values that runs may have, an empty one standing for any. The history's own names end in s."""
PARAMETERS = {name: Parameter([]) for name in FILTERS}


def watch(history: History) -> None:
    """Look for runs that came or went, whoever recorded them, and have the page drawn with them.

    Before anything of the history is drawn: what is there by now needs no further run of the page.
    """
    st.fragment(_look, run_every=_POLL_S)(history, {}, time.monotonic())


def _look(history: History, drawn: dict[str, list[str]], begun: float) -> None:
    ended = st.session_state.get("drawn at", 0.0)  # before it had begun where it was interrupted
    if drawn and time.monotonic() - ended < _REST * (ended - begun):
        return
    try:
        history.refresh()
    except DsocrError as error:
        show_error(error)
        drawn["runs"] = []
        return
    if drawn.setdefault("runs", history.run_ids()) != history.run_ids():
        rerun_page()


def filters(state: LinkedState, history: History, narrowing: tuple[str, ...] = FILTERS) -> dict[str, Any]:
    """Draw a box a filter; gives what they say, as parameters of the query `runs`.

    A filter of which no run has a value is left out, unless a link names one. A button clears what is
    `narrowing` the runs, these among them.
    """
    values, _ = cached("filter values", history.state, None, lambda: history.query("filter_values"))
    for name, words in _WORDS.items():
        options = list(values.loc[values["name"] == f"{name}s", "value"])
        options += [chosen for chosen in state.value(name) if chosen not in options]
        if options:
            short = short_names(options)
            if name == "commit":
                short |= {each: each[:8] for each in options}
            st.multiselect(
                words, options, placeholder="any", format_func=short.__getitem__, **state.bound(name)
            )
    if state.used(*narrowing):
        name = f"{state.page} clear"
        st.button("Clear the filters", on_click=state.clear, args=narrowing, width="stretch", key=name)
    return {f"{name}s": list(state.value(name)) or None for name in FILTERS}


def commands(history: History, names: Mapping[str, str]) -> None:
    """Show the commands that made runs, by their names here, each at its commit."""
    lines = []
    for run, name in names.items():
        record = history.record(run)
        changed = ", with changes that were not committed" if record.git_dirty else ""
        commit = f"git checkout {record.git_commit[:12]} && " if record.git_commit else ""
        again = f"{commit}{record.command}" if record.command else f"# made by {record.source}: no command"
        lines += [f"# {name}{changed}", again]
    st.code("\n".join(lines), language=None, wrap_lines=True)

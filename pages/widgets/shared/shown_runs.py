"""Runs that a session shows: new ones wait until they are asked for, and filters narrow them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import short_names
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import LinkedState, Parameter
from pages.widgets.streamlit_mends import rerun_page

_SHOWN, _THERE = "history shown", "history shown and there"
_POLL_S = 5
"""Seconds after which the storage is asked what came and went: a listing of a folder where nothing did."""
_WORDS = {"backend": "Backend", "gpu": "GPU", "commit": "Commit", "tag": "Tag"}
FILTERS = tuple(_WORDS)
"""Lists of values that runs may have, an empty one standing for any. The history's own names end in s."""
PARAMETERS = {name: Parameter([]) for name in FILTERS}


def shown(history: History) -> set[str]:
    """The runs that this session shows: of those at its begin or last refresh what is still there.

    The same object until one goes or a refresh, so that what is made of them can be kept beside it.
    """
    if _SHOWN not in st.session_state:
        refresh(history)
    there: set[str] = st.session_state[_SHOWN] & set(history.run_ids())
    if there != st.session_state.get(_THERE):
        st.session_state[_THERE] = there
    run_ids: set[str] = st.session_state[_THERE]
    return run_ids


def refresh(history: History) -> None:
    """Show everything there is from now on. Raises DsocrError when the history cannot be listed."""
    history.refresh()
    st.session_state[_SHOWN] = set(history.run_ids())
    st.session_state.pop(_THERE, None)


@st.fragment(run_every=_POLL_S)
def refresh_button(history: History) -> None:
    try:
        before = shown(history)
        history.refresh()
        if shown(history) != before:
            rerun_page()
        count = len(set(history.run_ids()) - before)
        if st.button(
            plural(count, "new run") if count else "Refresh",
            icon=":material/refresh:", key="history refresh", type="primary" if count else "secondary",
            help="Show what was added or noted since, by others too.",
        ):  # fmt: skip
            refresh(history)
            st.rerun()
    except DsocrError as error:
        show_error(error)


def filters(state: LinkedState, history: History) -> dict[str, Any]:
    """Draw a box a filter; gives what they say, as parameters of the query `runs`.

    A filter of which no run has a value is left out, unless a link names one.
    """
    values, _ = history.query("filter_values")
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
    return {f"{name}s": list(state.value(name)) or None for name in FILTERS}

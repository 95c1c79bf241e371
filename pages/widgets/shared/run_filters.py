"""The filters of the history's runs that Timing and Runs share."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dsocr_core.runs.history import History
from dsocr_core.runs.labels import short_names
from pages.widgets.shared.url_state import LinkedState, Parameter

_WORDS = {"backend": "Backend", "gpu": "GPU", "commit": "Commit", "tag": "Tag"}
FILTERS = tuple(_WORDS)
"""Lists of values that runs may have, an empty one standing for any. The history's own names end in s."""
PARAMETERS = {name: Parameter([]) for name in FILTERS}


def draw(state: LinkedState, history: History) -> None:
    """A box a filter; one of which no run has a value is left out, unless a link names one."""
    values, _ = history.query("filter_values")
    for name, words in _WORDS.items():
        options = list(values.loc[values["name"] == f"{name}s", "value"])
        options += [chosen for chosen in state.value(name) if chosen not in options]
        if options:
            shown = {**short_names(options), **{each: each[:8] for each in options if _is_commit(each)}}
            st.multiselect(
                words, options, placeholder="any", format_func=shown.__getitem__, **state.bound(name)
            )


def _is_commit(option: str) -> bool:
    return len(option) == 40 and set(option) <= set("0123456789abcdef")


def parameters(state: LinkedState) -> dict[str, Any]:
    """Give what the filters say, as parameters of the query `runs`."""
    return {f"{name}s": list(state.value(name)) or None for name in FILTERS}

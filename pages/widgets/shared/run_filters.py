"""The filters of the history's runs that pages share: some always in sight, the others in a box to open."""

from __future__ import annotations

from datetime import datetime, time
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from dsocr_core.runs.labels import short_names
from pages.widgets.shared.url_state import LinkedState, Parameter

if TYPE_CHECKING:
    from streamlit.elements.lib.mutable_expander_container import ExpanderContainer

NAMES = ("backend", "engine", "gpu", "preset", "dtype", "commit", "tag", "source")
"""Lists of values that runs may have, an empty one standing for any. The history's own names end in s."""
FILTERS = (*NAMES, "since", "until")
PARAMETERS = {**{name: Parameter([]) for name in NAMES}, "since": Parameter(None), "until": Parameter(None)}
_IN_SIGHT = 4
"""The first so many are always in sight."""
_WORDS = {
    "backend": "Backend", "engine": "Engine", "gpu": "GPU", "preset": "Preset", "dtype": "Number type",
    "commit": "Commit", "tag": "Tag", "source": "Made by",
}  # fmt: skip


def draw_first(state: LinkedState, values: pd.DataFrame) -> None:
    """The filters that are always in sight; `values` is the answer to the query `filter_values`."""
    for name in NAMES[:_IN_SIGHT]:
        _choice(state, name, values)


def draw_more(state: LinkedState, values: pd.DataFrame, page: str, others: int = 0) -> ExpanderContainer:
    """The box with the other filters, to which a page adds its own ones when it is open.

    `others` counts those that are in use. Drawn when it is open: a browser takes long over that many fields.
    """
    rest = NAMES[_IN_SIGHT:]
    used = others + sum(bool(state.value(name)) for name in (*rest, "since", "until"))
    box = st.expander(
        f"More filters ({used})" if used else "More filters", expanded=used > 0, key=f"{page} more filters",
        on_change="rerun",
    )  # fmt: skip
    if box.open:
        with box:
            for name in rest:
                _choice(state, name, values)
            left, right = st.columns(2)
            left.date_input("From (UTC)", value=None, key=state.key("since"), format="YYYY-MM-DD")
            right.date_input("To (UTC)", value=None, key=state.key("until"), format="YYYY-MM-DD")
    return box


def _choice(state: LinkedState, name: str, values: pd.DataFrame) -> None:
    """A filter; what no run has is left out, unless a link names it."""
    options = list(values.loc[values["name"] == f"{name}s", "value"])
    options += [chosen for chosen in state.value(name) if chosen not in options]
    if options:
        words = {**short_names(options), **{commit: commit[:8] for commit in options if _is_commit(commit)}}
        st.multiselect(
            _WORDS[name], options, key=state.key(name), placeholder="any", format_func=words.__getitem__
        )


def _is_commit(option: str) -> bool:
    return len(option) == 40 and set(option) <= set("0123456789abcdef")


def parameters(state: LinkedState) -> dict[str, Any]:
    """Give what the filters say, as parameters of the query `runs`."""
    chosen: dict[str, Any] = {f"{name}s": list(state.value(name)) or None for name in NAMES}
    # Days are UTC's, as the times of runs are.
    return chosen | {
        name: datetime.combine(day, moment) if (day := state.value(name)) else None
        for name, moment in (("since", time.min), ("until", time.max))
    }

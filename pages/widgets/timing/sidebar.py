"""The sidebar of the Timing page: which of the history's runs are offered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cached_property
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.history.store import History
from pages.widgets.shared.formats import plural
from pages.widgets.shared.labels import chart_names, run_labels, short_names
from pages.widgets.shared.new_runs import refresh_button, shown
from pages.widgets.timing import address
from pages.widgets.timing.address import FILTERS, key, value

_MOST_RUNS = 500
"""A select box is offered the newest so many."""
_WORDS = {
    "backend": "Backend", "engine": "Engine", "gpu": "GPU", "preset": "Preset", "dtype": "Number type",
    "source": "Made by", "commit": "Commit", "tag": "Tag",
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What the views are about: the history, the runs of the session, and those that pass the filters."""

    history: History
    every: pd.DataFrame
    """All runs of the session, newest first, profiled and trashed ones too: what a link may name."""
    runs: pd.DataFrame
    """Those that pass the filters."""
    filters: dict[str, Any]
    """As the history's queries take them."""

    @cached_property
    def labels(self) -> dict[str, str]:
        return run_labels(self.every)

    @cached_property
    def names(self) -> dict[str, tuple[str, str]]:
        return chart_names(self.every)

    def offered(self, *chosen: str, runs: pd.DataFrame | None = None) -> list[str]:
        """Runs for a select box, newest first; those chosen stay whatever the filters say."""
        found = self.runs if runs is None else runs
        offered = found["run_id"].head(_MOST_RUNS).tolist()
        return [*offered, *(run_id for run_id in chosen if run_id not in offered)]

    def commands(self, *run_ids: str) -> list[str | None]:
        return [self.history.record(run_id).command for run_id in run_ids]


def draw(history: History) -> Shown:
    """Draw the sidebar. Raises DsocrError when the history does not answer."""
    refresh_button(history)
    values, _ = history.query("filter_values")
    for name in ("backend", "engine", "gpu", "preset"):
        _choice(name, values)
    st.toggle("Profiled runs too", key=key("profiled"), help="Their times carry the profiler's overhead.")
    more = [name for name in FILTERS if name not in ("backend", "engine", "gpu", "preset")]
    used = sum(bool(value(name)) for name in (*more, "since", "until"))
    with st.expander(f"More filters ({used})" if used else "More filters", expanded=used > 0):
        for name in more:
            _choice(name, values)
        left, right = st.columns(2)
        left.date_input("From (UTC)", key=key("since"), format="YYYY-MM-DD")
        right.date_input("To (UTC)", key=key("until"), format="YYYY-MM-DD")
    filters = _filters()
    every = history.runs(trashed=None)
    every = every[every["run_id"].isin(shown(history))]
    passing = history.runs(**filters)["run_id"]
    runs = every[every["run_id"].isin(set(passing))]
    st.caption(f"{len(runs):,} of {plural(len(every), 'run')}")
    if any(value(name) for name in (*FILTERS, "since", "until")):
        st.button("Clear filters", on_click=_clear, width="stretch", key="timing clear")
    if unread := len(history.problems):
        st.caption(f"{plural(unread, 'entry', 'entries')} of the history cannot be read: see Runs.")
    return Shown(history, every, runs, filters)


def _choice(name: str, values: pd.DataFrame) -> None:
    there = values.loc[values["name"] == f"{name}s", "value"].tolist()
    options = [*there, *(chosen for chosen in value(name) if chosen not in there)]
    words = short_names(options)
    st.multiselect(
        _WORDS[name], options, key=key(name), format_func=words.__getitem__, placeholder="any",
        disabled=not options,
    )  # fmt: skip


def _clear() -> None:
    for name in FILTERS:
        address.put(name, [])
    address.put("since", None)
    address.put("until", None)


def _filters() -> dict[str, Any]:
    filters: dict[str, Any] = {f"{name}s": list(value(name)) or None for name in FILTERS}
    since, until = value("since"), value("until")
    filters["profiled"] = None if value("profiled") else False
    filters["since"] = datetime.combine(since, time()) if since else None
    filters["until"] = datetime.combine(until, time()) + timedelta(days=1) if until else None
    return filters

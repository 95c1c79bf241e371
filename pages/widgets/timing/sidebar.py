"""The sidebar of the Timing page: which of the history's runs are offered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import chart_names, run_labels
from pages.widgets.shared import resources, run_filters
from pages.widgets.shared.new_runs import refresh_button, shown
from pages.widgets.timing.address import STATE, key, value

_MOST_RUNS = 500
"""A select box is offered the newest so many."""


@dataclass(frozen=True)
class Shown:
    """Matter of the views: the history, the runs of the session, and those that pass the filters."""

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
    run_filters.draw(STATE, history)
    st.toggle("Profiled runs too", key=key("profiled"), help="Their times carry the profiler's overhead.")
    st.toggle(
        "Contended runs too", key=key("contended"),
        help="Other programs took more than a fifth of the machine's CPU time while they were made. A run "
        "with drafts is then compared with one without as well.",
    )  # fmt: skip
    filters, there = _filters(), frozenset(shown(history))
    found = resources.held(
        "timing runs", history.state, (there, repr(filters)), lambda: _found(history, there, filters)
    )
    st.caption(f"{len(found.runs):,} of {plural(len(found.every), 'run')}")
    if STATE.used(*run_filters.FILTERS):
        st.button(
            "Clear filters",
            on_click=STATE.clear,
            args=run_filters.FILTERS,
            width="stretch",
            key="timing clear",
        )
    if unread := len(history.problems):
        st.caption(f"{plural(unread, 'entry', 'entries')} of the history cannot be read: see Runs.")
    return found


def _found(history: History, there: frozenset[str], filters: dict[str, Any]) -> Shown:
    every = history.runs(trashed=None)
    every = every[every["run_id"].isin(there)]
    passing = history.runs(**filters)["run_id"]
    return Shown(history, every, every[every["run_id"].isin(set(passing))], filters)


def _filters() -> dict[str, Any]:
    return run_filters.parameters(STATE) | {
        "contended": None if value("contended") else False,
        "profiled": None if value("profiled") else False,
    }

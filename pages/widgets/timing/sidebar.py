"""The sidebar of the Timing page: which of the history's runs are offered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import run_labels
from pages.widgets.shared import resources, shown_runs
from pages.widgets.timing.address import STATE, bound, value

_MOST_RUNS = 500
"""A select box is offered the newest so many."""
_SWITCHES = {"contended": "on a busy machine", "profiled": "under a profiler"}


@dataclass(frozen=True)
class RunSelection:
    """The history, the runs of the session, and those that pass the filters: what the views choose from."""

    history: History
    every: pd.DataFrame
    """All runs of the session, newest first, profiled and trashed ones too: what a link may name."""
    runs: pd.DataFrame
    """Runs that pass the filters and the switches."""
    with_profiled: pd.DataFrame
    """These, and profiled ones whatever that switch says."""
    switched: dict[str, int]
    """Runs that each switch is about, whether it is on or off."""

    @cached_property
    def labels(self) -> dict[str, str]:
        return run_labels(self.every)

    @cached_property
    def facts(self) -> dict[str, dict[str, Any]]:
        """Rows of all runs by their id."""
        return dict(zip(self.every["run_id"], self.every.to_dict("records"), strict=True))

    def offered(self, *chosen: str, runs: pd.DataFrame | None = None) -> list[str]:
        """Runs for a select box, newest first; those chosen stay whatever the filters say."""
        found = self.runs if runs is None else runs
        return list(dict.fromkeys([*found["run_id"].head(_MOST_RUNS), *filter(None, chosen)]))

    @property
    def left_out_words(self) -> str:
        """Say what the switches leave out; nothing where they leave nothing out."""
        parts = [
            f"{plural(count, 'run')} {_SWITCHES[name]}"
            for name, count in self.switched.items() if count and not value(name)
        ]  # fmt: skip
        return f"Left out: {', '.join(parts)}." if parts else ""


def draw(history: History) -> RunSelection:
    """Draw the sidebar. Raises DsocrError when the history does not answer."""
    shown_runs.watch(history)
    filters = shown_runs.filters(STATE, history)
    switches = {name: bool(value(name)) for name in _SWITCHES}
    found = resources.cached(
        "timing runs", history.state, repr((filters, switches)),
        lambda: _found(history, filters, switches),
    )  # fmt: skip
    for name, words in _SWITCHES.items():
        if (count := found.switched[name]) or value(name):
            st.toggle(f"Include {plural(count, 'run')} {words}", **bound(name))
    if unread := len(history.problems):
        st.caption(f"{plural(unread, 'entry', 'entries')} of the history cannot be read: see Runs.")
    return found


def _found(history: History, filters: dict[str, Any], switches: dict[str, bool]) -> RunSelection:
    every = history.runs(trashed=None)
    passing = every[every["run_id"].isin(set(history.runs(**filters)["run_id"]))]
    about = {name: passing[name].astype(bool) for name in switches}
    counts = {name: int(of.sum()) for name, of in about.items()}
    quiet = passing if switches["contended"] else passing[~about["contended"]]
    shown = quiet if switches["profiled"] else quiet[~about["profiled"]]
    return RunSelection(history, every, shown, quiet, counts)

"""The run that all others are compared with: of the address, else the newest that is tagged so.

It is a tag of the history like any other: everybody sees it, and it can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import has_value
from dsocr_core.runs.speed import against_baseline
from dsocr_core.runs.statistics import Ratio
from pages.widgets.runs import address
from pages.widgets.runs.address import value
from pages.widgets.runs.tables import own_pace

TAG = "baseline"


def pinned(runs: pd.DataFrame) -> str:
    """The baseline among all runs, newest first; "" when there is none."""
    if value("baseline") in set(runs["run_id"]):
        return str(value("baseline"))
    return next((run for run, tags in zip(runs["run_id"], runs["tags"], strict=True) if TAG in tags), "")


def against(history: History, baseline: str, pace: pd.DataFrame) -> dict[str, Ratio]:
    """Compare the runs of the query `pace` with the baseline; empty without one."""
    backends = own_pace(pace[pace["page_ms"].notna()]).set_index("run_id")["backend"].to_dict()
    if baseline not in backends:
        return {}
    return against_baseline(history, (baseline, backends[baseline]), backends)


def pin_button(history: History, run_id: str, baseline: str, on_error: Callable[[str], None]) -> None:
    if run_id == baseline:
        st.button(
            "Unpin baseline", icon=":material/keep_off:", key="runs unpin", on_click=_pin,
            args=(history, "", on_error),
        )  # fmt: skip
    else:
        st.button(
            "Pin as baseline", icon=":material/keep:", key="runs pin", on_click=_pin,
            args=(history, run_id, on_error), help="All runs are compared with it, page by page.",
        )  # fmt: skip


def _pin(history: History, run_id: str, on_error: Callable[[str], None]) -> None:
    """A callback: the tag moves to that run, or from all where it is ""."""
    try:
        for run in history.runs().to_dict("records"):
            if has_value(run["tags"]) and TAG in run["tags"] and run["run_id"] != run_id:
                history.tag(run["run_id"], TAG, on=False)
        if run_id:
            history.tag(run_id, TAG)
    except DsocrError as error:
        on_error(str(error))
    address.put("baseline", run_id)

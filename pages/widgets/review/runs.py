"""Choice of the runs that are reviewed: A and B, chosen in the sidebar."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.review.keys import parse_key, review_key
from dsocr_core.runs.history import EXAMPLE, History
from dsocr_core.runs.labels import has_value, run_labels, short
from pages.widgets.review import address
from pages.widgets.review.address import value
from pages.widgets.shared import resources
from pages.widgets.shared.url_state import go

_MOST_RUNS = 500
"""A select box is offered the newest so many."""
_EXAMPLE = ("20261123-233116-ca7435ad", "20261123-233133-fcdfed67")
"""Runs of the examples that differ, in one setting alone."""
_ITSELF = ""
"""The other backend of the same run."""


@dataclass(frozen=True)
class Runs:
    """The runs to choose from, newest first."""

    labels: dict[str, str]
    """Run id -> what it is called."""
    usual: str
    """The review to open when none is asked for: of the newest run with both backends; "" when there is none.

    Where there are examples only, one with differences.
    """


def runs_of(history: History) -> Runs:
    """The runs that have pages."""

    def made() -> Runs:
        every = history.runs()
        every = every[every["pages"].fillna(0) > 0]
        return Runs(run_labels(every.head(_MOST_RUNS)), _usual(every))

    return resources.cached("review runs", history.state, None, made)


def _usual(runs: pd.DataFrame) -> str:
    """The key of the review to open, of runs that are newest first."""
    several = runs["backends"].map(lambda names: has_value(names) and len({*names}) > 1).astype(bool)
    both = runs[several & (runs["compared"].fillna(0) > 0)]
    own = both[~both["tags"].map(lambda tags: EXAMPLE in tags).astype(bool)]
    if own.empty and {*_EXAMPLE} <= {*runs["run_id"]}:
        return review_key(*_EXAMPLE)
    return str(next(iter([*own["run_id"], *both["run_id"]]), ""))


def choose(runs: Runs) -> None:
    """Two select boxes that make the review's key."""
    run_a, run_b = _chosen()
    labels = dict(runs.labels)
    for run_id in (run_a, run_b):
        if run_id:
            labels.setdefault(run_id, short(run_id))
    words = {_ITSELF: "the other backend of A's run"} | labels
    st.session_state["review a"], st.session_state["review b"] = run_a or None, run_b
    for name, options in (("a", list(labels)), ("b", list(words))):
        st.selectbox(
            name.upper(), options, key=f"review {name}", format_func=words.__getitem__,
            placeholder="a recorded run", on_change=_open,
        )  # fmt: skip


def _chosen() -> tuple[str, str]:
    try:
        run_a, run_b, _, _ = parse_key(value("review"))
    except DsocrError:
        return "", ""
    return run_a, run_b if run_b and run_b != run_a else _ITSELF


def _open() -> None:
    run_a, run_b = st.session_state["review a"], st.session_state["review b"]
    if run_a:
        address.open_review(review_key(run_a, run_b or None))


def nothing(runs: Runs) -> None:
    """Say what to do when there is no run with both backends."""
    if runs.labels:
        st.markdown(
            f"No run has both backends. Choose two of the {plural(len(runs.labels), 'run')} on the left, or "
            "compare pages to record both backends."
        )
    else:
        st.markdown("Nothing to review yet. Compare pages to record both backends, or import runs.")
    with st.container(horizontal=True):
        if st.button("Go to Compare", type="primary", key="review to compare"):
            go("compare")
        if st.button("Import runs", key="review to import"):
            go("runs", importing=True)

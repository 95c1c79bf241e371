"""Runs of the history on the FLOPs page: which run, which of its pages, which backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd
import streamlit as st

from analytic_model.recorded import PUBLISHED, TOGETHER, Reading, pages_of, reading, usual_page
from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.records import VENDOR, BackendName
from dsocr_core.runs.labels import chart_names, short_names, unlike
from dsocr_core.runs.store import History
from pages.widgets.flops import models
from pages.widgets.flops.address import STATE, key, put, text
from pages.widgets.flops.selection import NotRecordedError
from pages.widgets.shared import resources, sources
from pages.widgets.shared.labels import first_of_ours
from pages.widgets.shared.new_runs import refresh_button, shown

_MOST_RUNS = 500
"""A select box is offered the newest so many."""


def draw() -> Callable[[], Reading]:
    """Draw the controls. What it returns makes the reading, and raises DsocrError when that cannot be."""
    try:
        history = resources.history()
        refresh_button(history)
        pages = _choose(history)
    except (DsocrError, duckdb.Error) as error:
        return partial(_fail, error)
    backends(sorted(pages["backend"].unique(), key=lambda name: (name == VENDOR, name)))
    models.draw("run_model")
    return partial(_reading, history, pages)


def backends(names: Sequence[BackendName]) -> None:
    """A choice of one; until its reader chooses, or where a link names one that is not there, ours."""
    if text("backend") not in names:
        put("backend", first_of_ours(names))
    st.segmented_control(
        "Backend", names, required=True, key=key("backend"), width="stretch",
        format_func=short_names(names, 24).__getitem__,
    )  # fmt: skip


def _fail(error: Exception) -> Reading:
    raise error


def _runs(history: History, there: frozenset[str]) -> tuple[dict[str, str], list[str], str]:
    """Runs of this project that read a page, newest first, with what they are called; those to choose from,
    without those in the trash, which a link may name; the one to begin with.
    """
    runs = history.runs(sources=["dsocr"], trashed=None)
    runs = runs[runs["run_id"].isin(there) & runs["new_tokens"].notna()]
    if runs.empty:
        raise NotRecordedError(
            "No run of this project is in the history yet. Read a page on Compare: the app records each run."
        )
    # A sidebar is narrow: what tells runs apart comes first.
    labels = unlike({run_id: " · ".join(words) for run_id, words in chart_names(runs).items()})
    kept = runs[~runs["trashed"].astype(bool)]
    kept = kept if len(kept) else runs
    return labels, kept["run_id"].tolist()[:_MOST_RUNS], newest(kept)


def _choose(history: History) -> pd.DataFrame:
    """Draw the choice of a run and a page; returns the run's pages whose work is recorded."""
    there = frozenset(shown(history))
    labels, offered, first = resources.held("flops runs", history.state, there, lambda: _runs(history, there))
    if STATE.missing("run", labels):
        raise DsocrError(f"run {text('run')[:60]} is not there, or has read no page: choose another")
    if text("run") in labels:
        offered = [*offered, *({text("run")} - {*offered})]
    else:
        put("run", first)
    st.selectbox("Run", offered, key=key("run"), format_func=labels.__getitem__)
    pages = pages_of(history, text("run"))
    names = sorted(pages["page"].unique())
    for name, known in (("page", names), ("backend", set(pages["backend"]))):
        if STATE.missing(name, known):
            raise DsocrError(f"run {text('run')[:60]} has no {name} {text(name)[:60]}: choose another")
    if text("page") not in names:
        put("page", usual_page(history, text("run"), names))
    st.selectbox("Page", names, key=key("page"), format_func=short_names(names).__getitem__)
    return pages


def newest(runs: pd.DataFrame) -> str:
    """The newest run on a GPU that was not under a profiler and read pages one by one, else the newest; of
    those with a checkpoint.
    """
    known = runs["checkpoint"].notna()
    runs = runs[known] if known.any() else runs
    together = runs["engine"].astype(str).str.contains(TOGETHER)
    on_gpu = runs[runs["gpu"].notna() & ~runs["profiled"].astype(bool) & ~together]
    return str((on_gpu if len(on_gpu) else runs)["run_id"].iloc[0])


def _reading(history: History, pages: pd.DataFrame) -> Reading:
    found = reading(history, pages, text("run"), text("page"), text("backend"))
    model = text("run_model")
    return replace(
        found, config_path=_own_model(found.config_path) if model == "Run" else models.path_of(model)
    )


def _own_model(path: Path) -> Path:
    """Raises DsocrError where the run's checkpoint is not on this machine, or not where pages may read."""
    if path == PUBLISHED:
        return path
    try:
        return sources.typed_path(str(path), resources.allowed_roots())
    except DsocrError as error:
        raise DsocrError(f"the run's checkpoint: {error}; or choose another model on the left") from error

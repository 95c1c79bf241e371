"""Runs of the history on the FLOPs page: which run, which of its pages, and what was timed there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd
import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RunRecord
from dsocr_core.history.store import History
from dsocr_core.records import VENDOR
from dsocr_core.settings import PROJECT_ROOT
from dsocr_core.stages import Stage
from pages.widgets.flops import backend, models
from pages.widgets.flops.address import key, text
from pages.widgets.flops.bounds import recorded_workload
from pages.widgets.flops.selection import NotRecordedError, Reading, Recorded
from pages.widgets.shared import resources, sources
from pages.widgets.shared.labels import chart_names, short_names, unlike
from pages.widgets.shared.messages import plain
from pages.widgets.shared.new_runs import refresh_button, shown

_MOST_RUNS = 500
"""A select box is offered the newest so many."""
_SHAPE = ("width", "height", "preset", "prompt_tokens", "new_tokens")
"""What a run has to record of a page for its work to be counted."""


_OF_EXAMPLES = "published"
"""The folder that held the published config, which comes along, on the examples' GPU machine."""


def draw() -> Callable[[], Reading]:
    """Draw the controls. What it returns makes the reading, and raises DsocrError when that cannot be."""
    try:
        history = resources.history()
        refresh_button(history)
        pages = _choose(history, _runs(history))
    except (DsocrError, duckdb.Error) as error:
        return partial(_fail, error)
    backend.draw(sorted(pages["backend"].unique(), key=lambda name: (name == VENDOR, name)))
    models.draw("run_model")
    return partial(_reading, history, pages)


def _fail(error: Exception) -> Reading:
    raise error


def _runs(history: History) -> pd.DataFrame:
    """Runs of this project that read a page, newest first; those in the trash too, as a link may name one."""
    runs = history.runs(sources=["dsocr"], trashed=None)
    runs = runs[runs["run_id"].isin(shown(history)) & runs["new_tokens"].notna()]
    if runs.empty:
        raise NotRecordedError(
            "No run of this project is in the history yet. Read a page on Compare: the app records each run."
        )
    return runs


def _choose(history: History, runs: pd.DataFrame) -> pd.DataFrame:
    """Draw the choice of a run and a page; returns the run's pages whose work is recorded."""
    # A sidebar is narrow: what tells runs apart comes first.
    labels = unlike({run_id: " · ".join(words) for run_id, words in chart_names(runs).items()})
    offered = (runs.loc[~runs["trashed"].astype(bool), "run_id"].tolist() or list(labels))[:_MOST_RUNS]
    if text("run") in labels:
        offered += [] if text("run") in offered else [text("run")]
    else:
        if text("run"):
            st.warning(plain(f"Run {text('run')[:60]} is not in this history; this is the newest."))
        st.session_state[key("run")] = offered[0]
    st.selectbox("Run", offered, key=key("run"), format_func=labels.__getitem__)
    pages, _ = history.query("pages", run_ids=[text("run")])
    pages = pages[pages[list(_SHAPE)].notna().all(axis=1) & pages["error"].isna()]
    names = sorted(pages["page"].unique())
    if not names:
        raise DsocrError(f"run {text('run')}: it does not say what its pages were; choose another run")
    if text("page") not in names:
        st.session_state[key("page")] = _usual_page(history, names)
    st.selectbox("Page", names, key=key("page"), format_func=short_names(names).__getitem__)
    return pages


def _usual_page(history: History, names: list[str]) -> str:
    """The page of median time: the first that a run reads may have the making of its kernels in it."""
    totals, _ = history.query("page_totals", run_ids=[text("run")])
    times = totals[totals["page"].isin(names)].groupby("page")["milliseconds"].sum().sort_values()
    return str(times.index[len(times) // 2]) if len(times) else names[0]


def _reading(history: History, pages: pd.DataFrame) -> Reading:
    run, page, name = text("run"), text("page"), text("backend")
    found = pages[(pages["page"] == page) & (pages["backend"] == name)].to_dict("records")
    if not found:
        raise DsocrError(f"{name} did not read {page[:80]} in this run; choose another backend on the left")
    shape, record = found[0], history.record(run)
    size, preset = (int(shape["width"]), int(shape["height"])), str(shape["preset"])
    timed, _ = history.query("page_timings", run_ids=[run], backends=[name], page=page)
    stages = {stage.value: stage for stage in Stage}
    times = {
        stages[stage]: float(part["milliseconds"].median())
        for stage, part in timed.groupby("stage")
        if stage in stages
    }
    model = text("run_model")
    return Reading(
        _own_model(record) if model == "Run" else models.path_of(model),
        size,
        preset,
        recorded_workload(size, preset, int(shape["prompt_tokens"]), int(shape["new_tokens"])),
        _attention(record, name),
        record.dtype or "not known",
        Recorded(name, _device(record, name), times),
    )


def _attention(record: RunRecord, name: str) -> str:
    """The record has our engine's; the published decoder knows no SDPA and runs its eager one against it."""
    attention = record.attention or "not known"
    return "eager" if name == VENDOR and attention == "sdpa" else attention


def _device(record: RunRecord, name: str) -> str:
    of_backend = record.environment.get(name)
    device = of_backend.get("device_name") if isinstance(of_backend, dict) else None
    return str(record.gpu or device or record.device or "a device that is not known")


def _own_model(record: RunRecord) -> Path:
    """Raises DsocrError where the run's checkpoint is not on this machine."""
    checkpoint = str(record.settings.get("checkpoint") or "").removeprefix("random:")
    if not checkpoint:
        raise DsocrError(f"run {record.id}: it does not name its checkpoint; choose a model on the left")
    if Path(checkpoint).parts[:1] == (_OF_EXAMPLES,) and not (PROJECT_ROOT / checkpoint).exists():
        return models.path_of("Published")
    try:
        return sources.typed_path(str(PROJECT_ROOT / checkpoint), resources.allowed_roots())
    except DsocrError as error:
        raise DsocrError(f"the run's checkpoint: {error}; or choose another model on the left") from error

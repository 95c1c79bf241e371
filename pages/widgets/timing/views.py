"""The tabs of the Timing page. Only the open one is computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs import timings
from dsocr_core.runs.flop_gaps import utilised
from dsocr_core.runs.labels import apart, short_names
from dsocr_core.runs.measures import MEASURES, OF_MODEL, Measure, measure_of
from dsocr_core.runs.statistics import changes, levels
from pages.widgets.shared import bars, figure, navigation, resources, table
from pages.widgets.shared.labels import first_of_ours
from pages.widgets.shared.messages import plain
from pages.widgets.timing import charts, kernels, regressions, tables
from pages.widgets.timing import comparison as against
from pages.widgets.timing.address import STATE, VIEWS, choose, chosen, key, put, value
from pages.widgets.timing.sidebar import Shown

_NEWEST = 5
"""Runs that are shown when nobody has chosen any."""
_RUNS_DRAWN = 100
"""Newest runs that the trend draws: a browser takes a second for a thousand."""


def draw(shown: Shown) -> None:
    """The tabs, or what to do when there is nothing to show."""
    if shown.every.empty:
        _nothing_yet()
        return
    drawers = (regressions.draw, _stages, _trend, against.draw, kernels.draw)
    drawn = [partial(drawer, shown) for drawer in drawers]
    figure.tabs(dict(zip(VIEWS, drawn, strict=True)), key("view"))


def _nothing_yet() -> None:
    st.markdown("There are no runs yet: read a page on Compare, or import runs of other programs on Runs.")
    if st.button("Go to Compare", type="primary", key="timing compare"):
        navigation.to_compare()


# --- Stages ---------------------------------------------------------------------------------------


def _stages(shown: Shown) -> None:
    with_times = shown.runs[shown.runs["run_id"].isin(shown.history.runs_with("stage_timings"))]
    _choose_runs(shown, with_times)
    run_ids = list(value("runs"))
    summary, sql = shown.history.query("stage_summary", run_ids=run_ids, backends=shown.filters["backends"])
    rows = timings.stage_rows(summary, run_ids)
    if rows.empty:
        st.info(_no_stages(run_ids, with_times))
        return
    words = "Medians over each run's pages, one stage after the other; vision lies inside prefill."
    if not rows["of_pages"].all():
        words += " Hatched: means, where a run has no times of its pages."
    figure.head(words, sql=[sql], commands=shown.commands(*run_ids), stages=rows)
    bars.draw(charts.stage_bars(rows, shown.names), words)
    named = rows.assign(run=[shown.names[run_id][0] for run_id in rows["run_id"]])
    table.draw(named, tables.STAGES)


def _choose_runs(shown: Shown, with_times: pd.DataFrame) -> None:
    """The choice of runs: the newest until the reader has chosen; a link may name runs that are gone."""
    if not chosen("runs"):
        put("runs", with_times["run_id"].head(_NEWEST).tolist())
    there = set(shown.every["run_id"])
    absent = [run_id for run_id in value("runs") if run_id not in there]
    if absent:
        put("runs", [run_id for run_id in value("runs") if run_id in there])
        st.warning(plain(f"Not in this history: {', '.join(run_id[:60] for run_id in absent)}"))
    st.multiselect(
        "Runs", shown.offered(*value("runs"), runs=with_times), key=key("runs"),
        format_func=shown.labels.__getitem__, on_change=partial(choose, "runs"),
        placeholder="Choose runs to set side by side",
    )  # fmt: skip


def _no_stages(run_ids: list[str], with_times: pd.DataFrame) -> str:
    """Why there is nothing to draw, and what to do."""
    if run_ids:
        return "No stage of these runs was timed, or not on the backends that the filter leaves."
    if with_times.empty:
        return "No run passes the filters. Clear them on the left, or allow profiled runs too."
    return "Choose runs above."


# --- Trend ----------------------------------------------------------------------------------------


def _trend(shown: Shown) -> None:
    timed, _ = shown.history.query("stage_summary")
    timed = timed[timed["run_id"].isin(shown.runs["run_id"])]
    if timed.empty:
        st.info("No run with times passes the filters. Clear them on the left, or allow profiled runs too.")
        return
    # The backend of most runs first.
    backends = timed.groupby("backend")["run_id"].nunique().sort_values(ascending=False).index.tolist()
    stages = [*timings.in_order(timed["stage"]), *MEASURES]
    for name, options in (("trend_backend", backends), ("stage", stages)):
        if STATE.missing(name, options):
            STATE.say_missing(name, name.removeprefix("trend_"))
            return
        if value(name) not in options:
            usual = _usual_backend(shown, backends) if name == "trend_backend" else "decode"
            put(name, usual if usual in options else options[0])
    left, right = st.columns(2, vertical_alignment="bottom")
    stage_words = short_names(stages)
    left.selectbox("Stage or figure", stages, key=key("stage"), format_func=stage_words.__getitem__)
    measure = measure_of(value("stage"))
    backend_words = short_names(backends)
    right.selectbox("Backend", backends, key=key("trend_backend"), format_func=backend_words.__getitem__)
    found = _trend_of(shown, measure, value("trend_backend"))
    rows, steps, turns = found.rows, found.levels, found.changes
    if rows.empty:
        st.info(
            "Not available: needs a known GPU, pages read one by one, and the model's sizes."
            if measure.name in OF_MODEL
            else "No run timed this stage on this backend."
        )
        return
    drawn = timings.newest(rows, steps, turns, _RUNS_DRAWN)
    words = _trend_words(drawn[0], turns, drawn[2], measure)
    if len(rows) > _RUNS_DRAWN:
        words += f" The newest {_RUNS_DRAWN} of {len(rows):,} runs are drawn; the CSV has all."
    frames = {"trend": rows.drop(columns=["position"]), "levels": steps.drop(columns=["first", "last"])}
    figure.head(words, sql=[found.sql], **frames)
    figure.plot(charts.trend(*drawn, measure), "trend", words)
    if len(turns):
        table.draw(tables.told_changes(turns, measure), tables.changes_columns(measure))


@dataclass(frozen=True)
class _Trend:
    """One measure on one backend, run after run, as `tables` has it, and the SQL of the question."""

    rows: pd.DataFrame
    levels: pd.DataFrame
    changes: pd.DataFrame
    sql: str


def _trend_of(shown: Shown, measure: Measure, backend: str) -> _Trend:
    """Make the trend of all pages' medians; of a rate or a share one of its runs."""
    if measure.column:
        name, column, more = "pace_trend", measure.column, {}
    else:
        name, column, more = "trend", "", {"stage": measure.name}
    asked = shown.filters | {"backend": backend} | more

    def ask() -> _Trend:
        found, sql = shown.history.query(name, **asked)
        if measure.name in OF_MODEL:
            found = found.merge(utilised(shown.history, shown.runs, backend), on="run_id")
        rows = timings.trend_rows(found, shown.runs, column)
        steps = levels(rows)
        return _Trend(rows, steps, changes(steps), sql)

    of = (name, column, repr(asked), tuple(shown.runs["run_id"]))
    return resources.held("timing trend", shown.history.state, of, ask, most=16)  # some for each backend


def _usual_backend(shown: Shown, backends: list[str]) -> str:
    """One of our engines, and of these one whose decode has changed."""
    for backend in backends:
        if backend != VENDOR and len(_trend_of(shown, measure_of("decode"), backend).changes):
            return backend
    return first_of_ours(backends)


def _trend_words(rows: pd.DataFrame, turns: pd.DataFrame, visible: pd.DataFrame, measure: Measure) -> str:
    """Say how many runs are drawn, and the last change among them; else the last one before them."""
    words = f"{plural(len(rows), 'run')}"
    conditions = rows["condition"].unique()
    if len(conditions) > 1:
        common, _ = apart(conditions)
        shared = f", all {common}" if common else ""
        words += f" under {len(conditions)} conditions, each a series of its own{shared}"
    if len(rows) < 2:
        return f"{words}: there is nothing yet to compare it with."
    if turns.empty:
        return f"{words}. No change of level that stands out of the noise."
    last = turns.iloc[-1]
    change = f"{last['since']:%Y-%m-%d}: {measure.change(float(last['before']), float(last['value']))}"
    if visible.empty:
        return f"{words}. No change of level among them; the last one before them on {change}."
    return (
        f"{words}. {plural(len(visible), 'change')} of level; the last on {change}, marked by a solid line."
    )

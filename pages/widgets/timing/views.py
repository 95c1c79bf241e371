"""The tabs of the Timing page. Only the open one is computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from analytic_model.recorded import utilised
from dsocr_core.base.words import plural
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs import timings
from dsocr_core.runs.labels import apart, short, short_names
from dsocr_core.runs.measures import MEASURES, OF_MODEL, Measure, measure_of
from dsocr_core.runs.statistics import changes, levels
from pages.widgets.shared import bars, figure, navigation, resources, table
from pages.widgets.shared.labels import first_of_ours
from pages.widgets.shared.messages import plain
from pages.widgets.timing import charts, kernels, ladder, regressions, tables
from pages.widgets.timing import comparison as against
from pages.widgets.timing.address import PARAMETERS, STATE, VIEWS, choose, chosen, key, put, value
from pages.widgets.timing.sidebar import Shown

_NEWEST = 5
"""Runs that are shown when nobody has chosen any."""
_RUNS_WITH_PAGES = 10
"""Newest runs whose pages are offered for the trend of one page."""
_RUNS_DRAWN = 100
"""Newest runs that the trend draws unless all are asked for: a browser takes a second for a thousand."""


def draw(shown: Shown) -> None:
    """The tabs, or what to do when there is nothing to show."""
    if shown.every.empty:
        _nothing_yet()
        return
    drawers = (regressions.draw, _stages, _trend, against.draw, kernels.draw, ladder.draw)
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
        _served(shown, run_ids)
        return
    means = not rows["of_pages"].all()
    # One figure: a second one would double what the browser has to do before the page is at rest.
    if value("chart") == "spread":
        _spread(shown, run_ids, rows, sql, means)
    else:
        words = "Medians over each run's pages, one stage after the other; vision lies inside prefill."
        if means:
            words += " Hatched: means, where a run has no times of its pages."
        figure.head(words, sql=[sql], commands=shown.commands(*run_ids), stages=rows)
        bars.draw(charts.stage_bars(rows, shown.names), words)
    named = rows.assign(run=[shown.names[run_id][0] for run_id in rows["run_id"]])
    table.draw(named, tables.STAGES)
    _served(shown, run_ids)


def _served(shown: Shown, run_ids: list[str]) -> None:
    """Benches of servers that pass the filters, beside the chosen runs; nothing where there are none."""
    benches = shown.runs.loc[shown.runs["source"] == "serving", "run_id"].head(_RUNS_WITH_PAGES).tolist()
    if not benches:
        return
    reported, sql = shown.history.query("reported", run_ids=benches)
    pace, own = shown.history.query("pace", run_ids=run_ids)
    rows = timings.served_rows(reported, pace)
    named = rows.assign(run=[shown.names[run_id][0] for run_id in rows["run_id"]])
    figure.head(
        "Benches of servers, and the chosen runs in their terms.", sql=[sql, own], commands=[], served=rows
    )
    table.draw(named, tables.SERVED)


def _spread(shown: Shown, run_ids: list[str], rows: pd.DataFrame, sql: str, means: bool) -> None:
    """Each stage's median with its percentiles; every page's time as a dot where the reader wants them."""
    queries, frames = [sql], {"stages": rows}
    pages = None
    if value("every"):
        pages, sql = shown.history.query("page_timings", run_ids=run_ids, backends=shown.filters["backends"])
        queries.append(sql)
        frames["pages"] = pages
    words = "Dots: medians, with p5 to p95 over the pages."
    if means:
        words += " Rings: means, with one standard deviation."
    if pages is not None and len(pages) > charts.MOST_POINTS:
        words += f" Of {plural(len(pages), 'time')} about {charts.MOST_POINTS:,} are drawn."
    figure.head(words, sql=queries, commands=shown.commands(*run_ids), **frames)
    figure.plot(charts.stage_spread(rows, shown.names, pages), "spread", words)


def _choose_runs(shown: Shown, with_times: pd.DataFrame) -> None:
    """The choice of runs: the newest until the reader has chosen; a link may name runs that are gone."""
    if not chosen("runs"):
        put("runs", with_times["run_id"].head(_NEWEST).tolist())
    there = set(shown.every["run_id"])
    absent = [run_id for run_id in value("runs") if run_id not in there]
    if absent:
        put("runs", [run_id for run_id in value("runs") if run_id in there])
        st.warning(plain(f"Not in this history: {', '.join(run_id[:60] for run_id in absent)}"))
    left, middle, right = st.columns([3.2, 1.2, 0.9], vertical_alignment="bottom")
    left.multiselect(
        "Runs", shown.offered(*value("runs"), runs=with_times), key=key("runs"),
        format_func=shown.labels.__getitem__, on_change=partial(choose, "runs"),
        placeholder="Choose runs to set side by side",
    )  # fmt: skip
    middle.segmented_control(
        "Chart", PARAMETERS["chart"].choices, required=True, key=key("chart"), width="stretch",
        format_func=str.capitalize, label_visibility="collapsed",
    )  # fmt: skip
    right.toggle(
        "Every page", key=key("every"), help="Each page's time as a dot, in the spread.",
        disabled=value("chart") != "spread",
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
    left, middle, right, axis = st.columns([1.8, 1.4, 2.0, 2.4], vertical_alignment="bottom")
    stage_words = short_names(stages)
    left.selectbox("Stage or figure", stages, key=key("stage"), format_func=stage_words.__getitem__)
    measure = measure_of(value("stage"))
    backend_words = short_names(backends)
    middle.selectbox("Backend", backends, key=key("trend_backend"), format_func=backend_words.__getitem__)
    pages = _pages(shown)
    page_words = {"": "all, their median"} | short_names(pages)
    right.selectbox(
        "Page",
        ["", *pages],
        key=key("page"),
        format_func=page_words.__getitem__,
        disabled=bool(measure.column),
    )
    axis.segmented_control(
        "By", PARAMETERS["axis"].choices, required=True, key=key("axis"), width="stretch"
    )  # fmt: skip

    found = _trend_of(shown, measure, value("trend_backend"), value("page"))
    rows, steps, turns = found.rows, found.levels, found.changes
    if rows.empty:
        of_page = f"of {short(value('page'))} " if value("page") else ""
        st.info(
            "Of no run is it known: it needs a card whose peaks are known, pages read one by one, and the "
            "sizes of the run's model."
            if measure.name in OF_MODEL
            else plain(f"No run timed this stage {of_page}on this backend.")
        )
        return
    drawn = rows, steps, turns
    if len(rows) > _RUNS_DRAWN:
        st.segmented_control(
            "Runs", ["newest", "all"], required=True, key=key("drawn"), label_visibility="collapsed",
            format_func={"newest": f"The newest {_RUNS_DRAWN}", "all": f"All {len(rows):,}"}.__getitem__,
        )  # fmt: skip
        if value("drawn") == "newest":
            drawn = timings.newest(rows, steps, turns, _RUNS_DRAWN)
    words = _trend_words(drawn[0], turns, drawn[2], measure)
    frames = {"trend": rows.drop(columns=["position"]), "levels": steps.drop(columns=["first", "last"])}
    figure.head(words, sql=[found.sql], **frames)
    figure.plot(charts.trend(*drawn, measure, value("axis")), "trend", words)
    if len(turns):
        table.draw(tables.told_changes(turns, measure), tables.changes_columns(measure))


@dataclass(frozen=True)
class _Trend:
    """One measure on one backend, run after run, as `tables` has it, and the SQL of the question."""

    rows: pd.DataFrame
    levels: pd.DataFrame
    changes: pd.DataFrame
    sql: str


def _trend_of(shown: Shown, measure: Measure, backend: str, page: str = "") -> _Trend:
    """Make the trend of all pages' medians, or of one page; of a rate or a share one of its runs."""
    if measure.column:
        name, column, more = "pace_trend", measure.column, {}
    elif page:
        name, column, more = "page_trend", "milliseconds", {"stage": measure.name, "page": page}
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


def _pages(shown: Shown) -> list[str]:
    """Pages of the newest runs, and the chosen one."""
    newest = shown.runs["run_id"].head(_RUNS_WITH_PAGES).tolist()
    found, _ = shown.history.query("pages", run_ids=newest)
    names = sorted(found["page"].unique())
    return names if value("page") in ("", *names) else [*names, value("page")]


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
        f"{words}. {plural(len(visible), 'change')} of level; the last on {change}, marked by a whole line."
    )

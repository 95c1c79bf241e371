"""Any two runs side by side: is B faster, in which stages, what differs, how to measure it again."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs import speed
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import WHOLE, engine_name, has_value, setting
from dsocr_core.runs.settings_diff import side_by_side
from dsocr_core.runs.statistics import NEUTRAL_BAND, outcome_words
from pages.widgets.shared import figure, resources, shown_runs, table
from pages.widgets.shared.labels import stage_name
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column
from pages.widgets.timing import charts, kernels
from pages.widgets.timing.address import STATE, open_pair, put, value
from pages.widgets.timing.sidebar import RunSelection

Side = tuple[str, str]
"""A run and one of its backends."""
_COMPARISON = {
    "stage": Column("stage", stage_name, left=True, width=128),
    "median_a": Column("A median", "ms"),
    "median_b": Column("B median", "ms"),
    "times": Column("B/A", "", "Time of B over time of A: below 1 B is faster."),
    "low": Column("95 % from", ""),
    "high": Column("to", ""),
    "outcome": Column("outcome", left=True),
    "pages": Column("pages", "count"),
    "runs_a": Column("runs of A", "count", "Runs of one commit, machine and setting: the draws."),
    "runs_b": Column("runs of B", "count"),
    "why": Column("why", left=True, width=260),
}


_Answers = tuple[pd.DataFrame, pd.DataFrame, list[str]]
"""Stages, what is compared, and the SQL of these."""


def draw(chosen: RunSelection) -> None:
    """The choice of two runs, and how B's times stand to A's once both are chosen."""
    sides = _sides(chosen)
    for side in "ab":
        STATE.settle(side, {run for run, _ in sides})
        STATE.settle(f"backend_{side}", {backend for run, backend in sides if run == value(side)})
    for side in "ab":
        runs = [backend for run, backend in sides if run == value(side)]
        if runs and not value(f"backend_{side}"):
            put(f"backend_{side}", next((each for each in runs if each != VENDOR), runs[0]))
    if value("b") and not value("a"):
        open_pair(_before(chosen, _chosen("b"), sides), _chosen("b"))
    a, b = _chosen("a"), _chosen("b")
    both = bool(value("a") and value("b"))
    # Another element once both are chosen: a browser leaves one closed that was closed.
    figure.opened("Two runs side by side", f"timing pair {both}", lambda: _pair(chosen, sides, a, b), both)


def _pair(chosen: RunSelection, sides: list[Side], a: Side, b: Side) -> None:
    _choice(sides, {each: _name(chosen, each) for each in sides})
    if a == b:
        if a[0]:
            st.info("A and B are the same: choose another run, or another backend.")
    elif a[0] and b[0]:
        _compare(chosen, a, b)


def _sides(chosen: RunSelection) -> list[Side]:
    """Timed runs and backends that pass the filters, newest first, and those that a link names."""
    timed = {*chosen.history.runs_with("timings")} & {*chosen.every["run_id"]}
    backends = chosen.every.set_index("run_id")["backends"].to_dict()
    return [
        (run, backend)
        for run in chosen.offered(value("a"), value("b")) if run in timed
        for backend in (backends[run] if has_value(backends[run]) else ())
    ]  # fmt: skip


def _name(chosen: RunSelection, side: Side) -> str:
    run = chosen.facts[side[0]]
    several = len(run["backends"]) > 1
    return chosen.labels[side[0]] + (f" · {engine_name(run, side[1])}" if several else "")


def _chosen(side: str) -> Side:
    return value(side), value(f"backend_{side}")


def _before(chosen: RunSelection, b: Side, sides: list[Side]) -> Side:
    """The newest run before B of its setting; else the one before it, or B itself."""
    of = chosen.facts[b[0]]
    older = [each for each in sides if chosen.facts[each[0]]["created"] < of["created"] and each[1] == b[1]]
    alike = (each for each in older if setting(chosen.facts[each[0]]) == setting(of))
    return next(alike, None) or next(iter(older), None) or b


def _choice(sides: list[Side], names: dict[Side, str]) -> None:
    for place, side, words in zip(st.columns(2), "ab", ("A, before", "B, after"), strict=True):
        box = f"timing side {side}"
        st.session_state[box] = _chosen(side) if _chosen(side) in names else None

        def take(side: str = side, box: str = box) -> None:
            run, backend = st.session_state[box] or ("", "")
            STATE.values.update({side: run, f"backend_{side}": backend})

        place.selectbox(
            words, sides, key=box, format_func=names.__getitem__, placeholder="Choose a run", on_change=take
        )


# --- what they say --------------------------------------------------------------------------------


def _compare(chosen: RunSelection, a: Side, b: Side) -> None:
    history, contended = chosen.history, bool(value("contended"))
    # A new run may be like one of the two, and one in the trash no longer counts.
    found, coverage, sql = resources.cached(
        "timing comparison", history.state, (a, b, contended), lambda: _asked(history, a, b, contended)
    )
    words = speed.coverage_words(coverage) if len(coverage) else "No page times on both sides."
    st.markdown(f"**{plain(speed.sentence(found))}** {plain(words)}")
    for name, words in (
        ("profiled", "under a profiler: its overhead is in the times"),
        ("contended", "on a busy machine: other programs took much of it"),
    ):
        if sides := [side for side, (run, _) in (("A", a), ("B", b)) if chosen.facts[run][name]]:
            st.warning(f"{' and '.join(sides)} ran {words}.")
    figure.head("Times on the same pages.", sql=sql, comparison=found, coverage=coverage)
    known = found["ratio"].notna().any()
    if known:
        words = "Ratio of times on the same pages with its 95 % interval over runs; grey is within 2 %."
        figure.plot(charts.ratios(found, NEUTRAL_BAND), "ratios", words)
    without = [name for name in ("low", "high", "why") if found[name].replace("", None).isna().all()]
    without += ["why"] * (found["why"].nunique() == 1 and "why" not in without)  # the sentence says it
    table.draw(found.drop(columns=without), _COMPARISON, "–")
    longest = found.loc[found["stage"] != WHOLE].nlargest(1, "median_b")["stage"]
    kernels.button(chosen, a[0], b[0], next(iter(longest), ""))
    _differences(chosen, a[0], b[0])
    st.markdown("**Measure again**, each several times in turn")
    shown_runs.commands(history, {a[0]: "A", b[0]: "B"})


def _asked(history: History, a: Side, b: Side, contended: bool) -> _Answers:
    sides = {"a": a[0], "b": b[0], "backend_a": a[1], "backend_b": b[1]}
    coverage, coverage_sql = history.query("coverage", **sides)
    summary, summary_sql = history.query("stage_summary", run_ids=[a[0], b[0]])
    compared = speed.compare_speed(history, a, b, contended=contended)
    found = speed.comparison(compared, summary, a, b)
    found = found.assign(
        times=found["ratio"].fillna(found["median_b"] / found["median_a"]),
        outcome=[outcome_words(each) for each in found["verdict"]],
    )
    return found, coverage, [coverage_sql, summary_sql]


def _differences(chosen: RunSelection, a: str, b: str) -> None:
    """Settings as used, environment and versions that differ."""
    facts, _ = chosen.history.query("facts", run_ids=[a, b])
    rows = side_by_side(chosen.every, facts, [a, b])
    rows = rows[rows["differs"].astype(bool)].drop(columns="differs")
    if rows.empty:
        st.caption("A and B have the same recorded settings, environment and versions.")
        return
    st.markdown(f"**What differs: {plural(len(rows), 'value')}**")
    table.draw(rows.rename(columns={a: "A", b: "B"}), missing="not known", most=10)

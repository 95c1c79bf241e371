"""Timing's first view: what changed between two commits, the rates so far, and the rows that say so."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural, speed_ratio
from dsocr_core.runs.regressions import LOOK_MS, LOOK_RATIO, Changes, changes, sentence
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.labels import stage_name
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column
from pages.widgets.timing import charts, pair
from pages.widgets.timing.address import STATE, VIEWS, bound, open_pair, value
from pages.widgets.timing.sidebar import RunSelection

_COLUMNS = {
    "of": Column("stage", left=True, width=136),
    "change": Column("change", left=True, width=84),
    "median_a": Column(
        "before", "ms", "Median over a run's pages; of several runs the median of theirs.", width=76
    ),
    "median_b": Column("after", "ms", width=70),
    "said": Column("evidence", left=True, width=204),
    "trend": Column("trend", "line", "The stage's median in every commit so far, from zero.", width=72),
}
_SAID = {"slower": "confirmed: ", "faster": "confirmed: ", "look": "to look at: ", "unchanged": ""}


def draw(chosen: RunSelection) -> None:
    """One sentence, the changed rows, the rates over commits, two runs side by side, stages by run."""
    history, contended = chosen.history, bool(value("contended"))
    found = resources.cached(
        "timing changes", history.state_of_runs, (tuple(chosen.runs["run_id"]), contended),
        lambda: changes(history, chosen.runs, contended=contended),
    )  # fmt: skip
    # Pairs of commits: first those with a slowdown, then the newest.
    order = found.rows.assign(
        since=[chosen.facts[run]["created"] for run in found.rows["b"]],
        slower=found.rows["kind"] == "slower", pair=found.rows["commits"] + " on " + found.rows["card"],
    ).sort_values(["slower", "since"], ascending=False, kind="stable")  # fmt: skip
    pairs = order.drop_duplicates("pair")
    names = pairs["pair"].tolist()
    STATE.settle("commits", names, next(iter(names), ""))
    STATE.settle("series", {*found.series["name"]})
    if names:
        one = pairs.iloc[names.index(value("commits"))]
        rows = found.rows[(found.rows["commits"] == one["commits"]) & (found.rows["card"] == one["card"])]
        left, right = st.columns([5, 2], vertical_alignment="center")
        left.markdown(f"**{plain(sentence(rows, one['commits'], one['card']))}**")
        right.selectbox("Commits", names, label_visibility="collapsed", **bound("commits"))
        _rows(rows)
    else:
        st.markdown(
            "No workload was timed at two commits under one setting. Record a bench of each: "
            "`dsocr gate --baseline HEAD~1`, or `dsocr bench --save` before and after a change."
        )
    if words := chosen.left_out_words:
        st.caption(words)
    if len(found.series):
        figure.opened("Rates over commits", "timing rates", lambda: _rates(found))
    pair.draw(chosen)
    if len(found.series):
        figure.opened(
            "Stages of each run", "timing stages", lambda: _stages(chosen, found), bool(value("series"))
        )


def _rates(found: Changes) -> None:
    series, marks, more = charts.drawn(found.series)
    words = f"Pages a second by commit; ▲ and ▼ mark steps of 10 % and more.{more}"
    figure.head(words, sql=found.sql, rates=found.series.drop(columns="position"), changes=found.rows)
    figure.plot(charts.rates(series, marks), "rates", words)


def _rows(rows: pd.DataFrame) -> None:
    changed, rest = rows[rows["kind"] != "unchanged"], rows[rows["kind"] == "unchanged"]
    if len(changed):
        _table(changed, "timing changed")
    if len(rest):
        figure.opened(f"{len(rest)} unchanged or too few runs", "timing rest", lambda: _rest(rest))


def _rest(rows: pd.DataFrame) -> None:
    few = int((rows["verdict"] == "inconclusive").sum())
    st.caption(
        f"{plural(few, 'row')} without an interval: record several runs a commit. What is to look at "
        f"is at least {LOOK_RATIO:g}x and {LOOK_MS:g} ms slower."
    )
    _table(rows, "timing unchanged")


def _table(rows: pd.DataFrame, name: str) -> None:
    shown = rows.assign(
        of=[
            f"{name.replace(f' on {card}', '')} · {stage_name(stage)}"
            for name, card, stage in zip(rows["name"], rows["card"], rows["stage"], strict=True)
        ],
        change=[speed_ratio(row.median_b, row.median_b / row.times) for row in rows.itertuples()],
        said=rows["kind"].map(_SAID) + rows["evidence"],
    )

    def opened() -> None:
        # While Kernels comes in, this table may still be there to be clicked on.
        for place in st.session_state[name]["selection"]["rows"] if value("view") == VIEWS[0] else ():
            row = rows.iloc[place]
            open_pair((row["a"], row["backend"]), (row["b"], row["backend"]))

    # Two lines a row: the evidence is seen whole on a narrow screen.
    table.draw(shown, _COLUMNS, "–", row=57, key=name, selection_mode="single-row", on_select=opened)


def _stages(chosen: RunSelection, found: Changes) -> None:
    """Stage medians of one series' runs: runs of another setting, or read together, are in another."""
    runs_of = found.series.groupby("name")["run_ids"].agg(lambda of: sum(map(len, of)))
    names = list(runs_of.sort_values(ascending=False, kind="stable").index)
    name = st.selectbox(
        "Series",
        ["", *names],
        format_func=lambda name: name or "Choose runs of one setting",
        **bound("series"),
    )
    if not name:
        return
    series = found.series[found.series["name"] == name]
    commits = {run: row.commit for row in series.itertuples() for run in reversed(row.run_ids)}
    runs = list(commits)[-charts.MOST_COMMITS :]
    summary, sql = chosen.history.query("stage_summary", run_ids=runs)
    pace, _ = chosen.history.query("pace", run_ids=runs)
    summary, pace = (each[each["backend"] == series["backend"].iloc[0]] for each in (summary, pace))
    words = f"Median of each stage in {plural(len(runs), 'run')}, by commit; vision is split off prefill."
    figure.head(words, sql=[sql], stages=summary)
    figure.plot(charts.stacks(summary, pace, runs, commits), "stages", words)

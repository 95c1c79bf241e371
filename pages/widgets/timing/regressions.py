"""Timing's first view: what became slower, ranked; a row opens its pair."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural, signed, speed_ratio
from dsocr_core.runs.regressions import counts, regressions
from dsocr_core.runs.statistics import SURE, outcome_words
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.stages import stage_name
from pages.widgets.shared.strip import Fact, Strip, reasons_html, strip_html
from pages.widgets.shared.table import Column
from pages.widgets.timing import tables
from pages.widgets.timing.address import choose, put, value
from pages.widgets.timing.comparison import OPEN, SIGNS
from pages.widgets.timing.sidebar import Shown

_TABLE = "timing regressions"


def _percent(share: float) -> str:
    text = f"{100 * share:+.2f} %".replace("-", "−")
    return "0 %" if text[1:] == "0.00 %" else text


_COLUMNS = {
    "verdict": Column("outcome", outcome_words, left=True),
    "stage": Column("stage", stage_name, left=True, width=136),
    "median_a": Column("A, before", "ms"),
    "median_b": Column("B, after", "ms"),
    "lost_ms": Column("B − A", "+ms", "Time of B less time of A, a page: above 0 B is slower."),
    "lost_share": Column("of A's page", _percent, "Of A's whole page."),
    "why": Column("why", width=264),
    "backend": Column("backend"),
    "under": Column("under", width=216),
    "speed": tables.SPEED,
    "low": Column("95 % from", "", "The interval of B / A: below 1 B is faster."),
    "high": Column("to", ""),
    "runs_a": Column("runs A", "count"),
    "runs_b": Column("runs B", "count"),
    "pages": Column("pages", "count"),
    "commits": Column("commits"),
}


def draw(shown: Shown) -> None:
    """The outcomes in a strip, and every stage of every workload and setting, the surest loss first."""
    contended = bool(value("contended"))
    history, of = shown.history, (tuple(shown.runs["run_id"]), contended)
    found, sql = resources.held(
        "timing regressions", history.state_of_runs, of,
        lambda: regressions(history, shown.runs, contended=contended),
    )  # fmt: skip
    if found.empty:
        st.info(
            "No workload that passes the filters was timed at two commits under one setting. Record a bench "
            "of each: `dsocr gate --baseline HEAD~1`, or `dsocr bench --save` before and after a change."
        )
        return
    strip = strip_of(found)
    st.html(strip_html(strip) + reasons_html(strip.reasons))
    pairs = plural(len(found[["a", "b", "backend"]].drop_duplicates()), "pair")
    words = (
        f"{pairs}: the newest commit (B) of each workload, setting, card and backend beside the commit "
        "before it (A), the surest loss first. Choose a row (by keyboard: Shift and Space) to open its pair."
    )
    figure.head(words, sql=sql, regressions=found)
    rows = told(found)
    without = [name for name in ("speed", "low", "high", "why") if rows[name].isna().all()]
    table.draw(
        rows.drop(columns=without),
        _COLUMNS,
        "–",
        key=_TABLE,
        selection_mode="single-row",
        on_select=lambda: _open(found),
    )


def strip_of(found: pd.DataFrame) -> Strip:
    """Write the gravest outcome, how many rows have which, and the first row of the gravest."""
    number = counts(found)
    gravest = next((word for word in ("slower", "inconclusive", "faster") if number[word]), "within")
    facts: list[Fact] = [(outcome_words(word), f"{count:,}") for word, count in number.items()]
    first = found.iloc[0]
    reason = (
        f"{stage_name(first['stage'])} of {first['backend']} on {first['under']}: "
        f"{signed(first['lost_ms'] / 1e3, 's')} a page, {speed_ratio(1.0, 1 / first['ratio'])} "
        f"({tables.interval_words(first['low'], first['high'])})"
        if gravest == "slower"
        else "no stage is slower for sure"
        + ("; inconclusive is what has too few runs, pages or too wide an interval" * (gravest[:2] == "in"))
    )
    word = outcome_words(gravest).upper()
    tone, icon = SIGNS.get(gravest, OPEN)
    return Strip(word, tone, tuple(facts), reasons=(reason,), icon=icon)


def told(found: pd.DataFrame) -> pd.DataFrame:
    """`regressions` with both commits in one column, and how many times as fast B is."""
    return found.assign(
        commits=tables.commit_words(found["commit_a"], found["commit_b"]),
        speed=(1 / found["ratio"]).where(found["verdict"].isin(SURE)),
    )


def _open(found: pd.DataFrame) -> None:
    """A callback: the chosen row's pair, with its stage page by page."""
    rows = st.session_state[_TABLE]["selection"]["rows"]
    if not rows:
        return
    row = found.iloc[rows[0]]
    for name in ("a", "b"):
        put(name, row[name])
        put(f"backend_{name}", row["backend"])
    put("of", row["stage"])
    put("view", "B against A")
    choose("a", "b")

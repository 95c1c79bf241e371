"""Timing's tab B against A: per stage and per page, what is compared and what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import plural, significant, speed_ratio
from dsocr_core.runs import timings
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import CONDITION, condition, has_value, short_names
from dsocr_core.runs.settings_diff import record_facts, side_by_side
from dsocr_core.runs.speed import LATENCY, compare_speed
from dsocr_core.runs.statistics import NEUTRAL_BAND, outcome_words
from pages.widgets.shared import bars, figure, resources, table
from pages.widgets.shared.labels import first_of_ours, time_words
from pages.widgets.shared.stages import stage_name
from pages.widgets.shared.strip import Fact, Strip, Tone, reasons_html, strip_html
from pages.widgets.timing import kernels, tables
from pages.widgets.timing import ratio_charts as charts
from pages.widgets.timing.address import STATE, choose, chosen, key, put, value
from pages.widgets.timing.sidebar import Shown

SIGNS: dict[str, tuple[Tone, str]] = {
    "faster": ("faster", "▲"), "slower": ("slower", "▼"), "within": ("none", "≈"),
}  # fmt: skip
"""Tone and sign of an outcome; of the others grey, and a question."""
OPEN: tuple[Tone, str] = ("none", "?")

MOST_PAGES = 200
"""Pages in the table: each cell more costs its time, and nobody reads further down."""
_PAIRED = 30
"""Newest runs among which a pair is looked for."""


def draw(shown: Shown) -> None:
    """The two runs, then how B's times stand to A's."""
    run_ids = _timed(shown)
    if not run_ids:
        st.info("No run with times passes the filters. Clear them on the left, or allow profiled runs too.")
        return
    for name in ("a", "b"):
        if STATE.missing(name, run_ids):
            STATE.say_missing(name, f"timed run {name.upper()}:")
            return
    _default_runs(shown, run_ids)
    backends = _backends(shown)
    for side, there in backends.items():
        if STATE.missing(f"backend_{side}", there):
            STATE.say_missing(f"backend_{side}", f"backend of {side.upper()}:")
            return
    _default_backends(backends)
    _sides(shown, run_ids, backends)
    a, b = (value("a"), value("backend_a")), (value("b"), value("backend_b"))
    if a == b:
        st.info("A and B are the same run and backend: choose another run, or another backend of it.")
        return
    _compare(shown, a, b)


def _timed(shown: Shown) -> list[str]:
    """Timed runs that pass the filters, newest first, and those that are chosen whatever the filters say."""
    offered = shown.offered(*(value(name) for name in ("a", "b") if value(name)))
    timed = {*shown.history.runs_with("stage_timings")} & {*shown.every["run_id"]}
    return [run_id for run_id in offered if run_id in timed]


def _default_runs(shown: Shown, run_ids: list[str]) -> None:
    """The two that are chosen in Stages, the earlier as A; else the newest two of one workload.

    A run alone is set against itself: it may have two backends.
    """
    for name in ("a", "b"):
        if value(name) not in run_ids:
            put(name, "")
    if value("a") and value("b") and (chosen("a") or chosen("b")):
        return
    a, b = _usual_pair(shown, run_ids)
    put("a", a)
    put("b", b)


def _usual_pair(shown: Shown, run_ids: list[str]) -> tuple[str, str]:
    """A and B where the reader has chosen at most one of them; `run_ids` are newest first."""
    selected = [run for run in run_ids if run in value("runs")]
    if not (chosen("a") or chosen("b")) and chosen("runs") and len(selected) > 1:
        return selected[1], selected[0]
    facts = shown.every.loc[shown.every["run_id"].isin(run_ids), ["run_id", *CONDITION]]
    under = {run["run_id"]: condition(run) for run in facts.to_dict("records")}

    def like(run: str) -> str:
        """The newest other run under the same condition; else the newest other."""
        others = [other for other in run_ids if other != run] or [run]
        return next((other for other in others if under[other] == under[run]), others[0])

    if chosen("a") and value("a"):
        return value("a"), like(value("a"))
    if chosen("b") and value("b"):
        return like(value("b")), value("b")
    b = next((run for run in run_ids[:_PAIRED] if under[like(run)] == under[run]), run_ids[0])
    return like(b), b


def _backends(shown: Shown) -> dict[str, list[str]]:
    """The timed backends of A and of B."""
    found, _ = shown.history.query("stage_summary", run_ids=[value("a"), value("b")])
    return {
        side: sorted(found.loc[found["run_id"] == value(side), "backend"].unique()) for side in ("a", "b")
    }


def _default_backends(backends: dict[str, list[str]]) -> None:
    """One of our engines where there is one; of a run against itself, two backends."""
    for side, there in backends.items():
        if value(f"backend_{side}") not in there:
            put(f"backend_{side}", first_of_ours(there))
    if value("a") == value("b") and value("backend_a") == value("backend_b") and not chosen("a"):
        put(
            "backend_a",
            next((backend for backend in backends["a"] if backend != value("backend_b")), value("backend_b")),
        )


def _sides(shown: Shown, run_ids: list[str], backends: dict[str, list[str]]) -> None:
    for side, name in (("a", "A, before"), ("b", "B, after")):
        left, right, more = st.columns([4, 1.4, 1.7], vertical_alignment="bottom")
        left.selectbox(
            name, run_ids, key=key(side), format_func=shown.labels.__getitem__,
            on_change=partial(choose, "a", "b"),
        )  # fmt: skip
        words = short_names(backends[side])
        right.selectbox(
            f"Backend of {side.upper()}", backends[side], key=key(f"backend_{side}"),
            format_func=words.__getitem__,
            on_change=partial(choose, "a", "b"),
        )  # fmt: skip
        if side == "a":
            more.button(
                "Swap", icon=":material/swap_vert:", on_click=_swap, width="stretch", key="timing swap"
            )
        else:
            STATE.number_input(
                more, "Band (%)", "neutral", step=0.5,
                help="Ratios of medians within this band count as equal; a verdict needs the whole interval "
                "beyond it.",
            )  # fmt: skip


def _swap() -> None:
    for name in ("", "backend_"):
        a, b = (f"{name}a", f"{name}b")
        before = value(a), value(b)
        put(a, before[1])
        put(b, before[0])
    choose("a", "b")


# --- what they say --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answers:
    """Answers of the history on A and B, and what follows from it."""

    found: pd.DataFrame
    pairs: pd.DataFrame
    coverage: pd.DataFrame
    sql: list[str]


def _compare(shown: Shown, a: tuple[str, str], b: tuple[str, str]) -> None:
    neutral, run_ids = value("neutral") / 100, list(dict.fromkeys((a[0], b[0])))
    of = (a, b, neutral, bool(value("contended")))
    # A new run may be like one of the two, and one in the trash no longer counts.
    state = shown.history.state
    answers = resources.held("timing comparison", state, of, lambda: _asked(shown.history, *of))
    found, coverage = answers.found, answers.coverage
    strip = strip_of(found, coverage, neutral)
    st.html(strip_html(strip) + reasons_html(strip.reasons))
    _warn(shown, a[0], b[0])
    known = found["ratio"].notna().any()
    words = "Ratio of times on the same pages with its 95 % interval over runs; grey is the neutral band."
    if not known:
        words = "Medians over the same pages."
    if not found["pages"].any():
        words = "No page was timed in both: nothing is known of a difference."
    figure.head(
        words, sql=answers.sql, commands=shown.commands(*run_ids), comparison=found, pairs=answers.pairs,
        coverage=coverage,
    )  # fmt: skip
    if known:
        bars.draw(charts.ratios(found, neutral), words)
    without = [] if known else ["speed", "ratio", "low", "high"]
    if found["pages"].any() and found["why"].nunique(dropna=False) < 2:  # the strip says it
        without.append("why")
    table.draw(found.drop(columns=without, errors="ignore"), tables.COMPARISON, "–")
    kernels.button(shown, a[0], b[0], value("of"))
    _left_out(coverage)
    _differences(shown, a[0], b[0])
    if len(answers.pairs) and not found["why"].str.contains(LATENCY).any():
        _pages(answers.pairs)


def _asked(
    history: History, a: tuple[str, str], b: tuple[str, str], neutral: float, contended: bool
) -> _Answers:
    sides = {"a": a[0], "b": b[0], "backend_a": a[1], "backend_b": b[1]}
    run_ids = list(dict.fromkeys((a[0], b[0])))
    pairs, pairs_sql = history.query("pairs", **sides)
    coverage, coverage_sql = history.query("coverage", **sides)
    totals, totals_sql = history.query("page_totals", run_ids=run_ids)
    summary, summary_sql = history.query("stage_summary", run_ids=run_ids)
    pairs = pd.concat([pairs, timings.whole_pages(totals, pairs, a, b)], ignore_index=True)
    rows = timings.stage_rows(summary, run_ids)
    of_sides = [
        rows[(rows["run_id"] == run_id) & (rows["backend"] == backend)].assign(side=side)
        for side, (run_id, backend) in (("a", a), ("b", b))
    ]
    found = timings.comparison(compare_speed(history, a, b, neutral, contended), pd.concat(of_sides))
    return _Answers(found, pairs, coverage, [pairs_sql, coverage_sql, totals_sql, summary_sql])


def strip_of(found: pd.DataFrame, coverage: pd.DataFrame, neutral: float = NEUTRAL_BAND) -> Strip:
    """The verdict on the whole page, else on its longest stage, and which pages it is about."""
    with_pages = found[found["pages"] > 0]
    whole = with_pages[with_pages["stage"] == timings.WHOLE]
    if whole.empty:
        whole = with_pages.sort_values("median_a").tail(1)
    covered = timings.coverage_words(coverage) if len(coverage) else "No page times on both sides."
    if whole.empty:
        return Strip("NOT MEASURED", "none", (), reasons=(covered,))
    row = whole.iloc[0]
    tone, icon = SIGNS.get(row["verdict"], OPEN)
    times = f"{time_words(row['median_a'])} → {time_words(row['median_b'])}"
    ratio = "–"
    if has_value(row["ratio"]):
        ratio = f"{significant(row['ratio'])} ({tables.interval_words(row['low'], row['high'])})"
    facts: list[Fact] = [(stage_name(row["stage"]), times)]
    if tone != "none":
        facts.append(("B is", speed_ratio(row["ratio"], 1.0)))
    facts += [
        ("B / A", ratio),
        ("n", f"{row['runs_a']} and {row['runs_b']} runs, {_pages_words(int(row['pages']), coverage)}"),
    ]
    word = outcome_words(str(row["verdict"]), neutral).upper()
    reasons = (covered.rstrip("."), *filter(None, [row["why"]]))
    return Strip(word, tone, tuple(facts), reasons=reasons, icon=icon)


def _pages_words(images: int, coverage: pd.DataFrame) -> str:
    """Count the pages that were compared; a bench takes few images again and again, which are the draws."""
    compared = coverage.loc[coverage["outcome"] == "compared", "page"].nunique() if len(coverage) else images
    return (
        plural(images, "page") if compared <= images else f"{compared:,} pages of {plural(images, 'image')}"
    )


def _warn(shown: Shown, a: str, b: str) -> None:
    records = {"A": shown.history.record(a), "B": shown.history.record(b)}
    for words, sides in (
        ("under a profiler: its overhead is in the times", [s for s, run in records.items() if run.profiled]),
        (
            "beside other programs, which took much of the machine",
            [s for s, run in records.items() if run.contended],
        ),
    ):
        if sides:
            st.warning(f"{' and '.join(sides)} ran {words}.")


def _left_out(coverage: pd.DataFrame) -> None:
    out = timings.left_out(coverage)
    if len(out):
        pages = coverage.loc[coverage["outcome"] != "compared", "page"].nunique()
        with st.expander(f"Left out: something of {plural(pages, 'page')}", expanded=len(out) <= 4):
            table.draw(out)


def _differences(shown: Shown, a: str, b: str) -> None:
    if a == b:
        return
    facts, sql = shown.history.query("differences", run_ids=[a, b])
    rows = side_by_side(pd.concat([record_facts(shown.every, [a, b]), facts]), [a, b], differing=True)
    if rows.empty:
        st.caption("A and B have the same recorded settings, environment and versions.")
        return
    with st.expander(f"What differs between A and B: {plural(len(rows), 'value')}"):
        table.draw(rows.rename(columns={a: "A", b: "B"}), missing="not known")
        st.code(sql, language="sql", height=160)


# --- page by page ---------------------------------------------------------------------------------


def _pages(pairs: pd.DataFrame) -> None:
    stages = timings.in_order(pairs["stage"])
    if value("of") not in stages:
        put("of", timings.WHOLE if timings.WHOLE in stages else stages[-1])
    words = short_names(stages)
    st.selectbox("Page by page", stages, key=key("of"), format_func=words.__getitem__, width=320)
    mine = timings.single_pairs(pairs[pairs["stage"] == value("of")])
    table.draw(mine.head(MOST_PAGES), tables.PAGES)
    if len(mine) > MOST_PAGES:
        st.caption(f"The {MOST_PAGES} largest changes of {plural(len(mine), 'page')}; the menu has all.")

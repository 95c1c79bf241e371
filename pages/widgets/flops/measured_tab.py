"""The tab Measured of the FLOPs page: what torch counts and what was timed, beside the prediction."""

from __future__ import annotations

from html import escape

import pandas as pd
import streamlit as st

from pages.widgets.flops import bounds, charts, gaps
from pages.widgets.flops.counting_job import Measurement
from pages.widgets.flops.selection import Recorded, Selection
from pages.widgets.shared import figure
from pages.widgets.shared.formats import duration, percent
from pages.widgets.shared.labels import backend_words
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.reruns import rerun_fragment
from pages.widgets.shared.strip import Strip, strip_html
from pages.widgets.shared.tab import open_tab
from pages.widgets.shared.verdicts import Tone

_POLL_S = 0.4
_MOST_COUNTS = 32


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """FLOPs against torch's counter, then recorded times against the bound."""
    _counter(selection)
    if selection.recorded is not None:
        _clock(selection, selection.recorded)


def _clock(selection: Selection, recorded: Recorded) -> None:
    """Recorded times against the bound."""
    if not recorded.times:
        st.markdown("Time of this page: **not measured** in this run.")
        return
    frame = bounds.times(selection.prediction, selection.hardware, recorded)
    device = recorded.device
    words = f"Time recorded on {device} by {backend_words(recorded.backend)} (n = 1)"
    if selection.on_recorded_device:
        words += f", over the least time on {selection.hardware.name}."
    else:
        frame = bounds.without_bound(frame)
        words += f". {bounds.no_bound_words(device, selection.hardware.name)}"
    figure.head(words, reproduce=selection.report(), times=frame)
    spans = bounds.time_spans(frame, "recorded", "least time")
    figure.plot(charts.cost_bars(spans, {"time": "s"}), "times", "Recorded time of each stage over its bound")
    figure.table(bounds.shown_times(frame), left=("stage",))


def _counter(selection: Selection) -> None:
    """Prediction against torch's counter."""
    measurement: Measurement | None = st.session_state.get("flops measurement")
    mine = measurement is not None and measurement.is_of(
        selection.config, selection.workload, selection.counter_attention
    )
    if measurement is not None and measurement.running:
        _progress(measurement, mine)
        if mine:
            return
    counted = counted_flops(selection)
    if counted is not None:
        _compared(selection, counted)
        return
    if measurement is not None and mine and not measurement.running:
        view = measurement.view()
        if view.error:
            show_error(view.error)
        elif view.state == "cancelled":
            st.caption(f"Cancelled after {duration(view.seconds * 1000)}.")
    st.markdown("FLOPs of this work: **not measured** yet. Let torch's counter watch our core run it.")
    busy = measurement is not None and measurement.running
    if st.button("Measure FLOPs", type="primary", key="flops measure", disabled=busy):
        started = Measurement(selection.config, selection.workload, selection.counter_attention)
        st.session_state["flops measurement"] = started
        started.start(open_tab())
        st.rerun()
    st.caption(
        "On torch's meta device: shapes without values, so no weights and no memory are needed. "
        "About a second to begin with, then some 50 ms a new token."
    )


def _progress(measurement: Measurement, mine: bool) -> None:
    st.fragment(_progress_panel, run_every=_POLL_S)(measurement, mine)


def _progress_panel(measurement: Measurement, mine: bool) -> None:
    view = measurement.view()
    if view.state != "running":
        if measurement.result is not None:
            _store(measurement)
        st.rerun()
    with st.container(border=True, gap="xsmall", key="progress"):
        left, right = st.columns([6, 1], vertical_alignment="center")
        stage = "getting torch ready" if view.stage is None else f"counting {view.stage.value}"
        words = "Cancelling…" if view.cancelling else f"{stage}, {duration(view.seconds * 1000)}"
        left.html(f"<div class='dsocr-headline'><i></i>{escape(words)}</div>")
        if right.button("Cancel", key="flops cancel", width="stretch", disabled=view.cancelling):
            measurement.cancel()
            rerun_fragment()
        rest = view.seconds_left
        note = "" if mine else "Other work than what is chosen now. "
        st.progress(view.share, note + (f"about {duration(rest * 1000)} left" if rest is not None else ""))


def _store(measurement: Measurement) -> None:
    """Counts of this session, the latest last."""
    counts = st.session_state.setdefault("flops counts", {})
    counts[measurement.config, measurement.workload, measurement.attention] = measurement.result
    while len(counts) > _MOST_COUNTS:
        counts.pop(next(iter(counts)))


def counted_flops(selection: Selection) -> gaps.Counted | None:
    """What torch counted of this very work, in this session; None when it has not."""
    measurement: Measurement | None = st.session_state.get("flops measurement")
    if measurement is not None and measurement.result is not None:
        _store(measurement)
    counts = st.session_state.get("flops counts", {})
    counted: gaps.Counted | None = counts.get(
        (selection.config, selection.workload, selection.counter_attention)
    )
    return counted


def _compared(selection: Selection, counted: gaps.Counted) -> None:
    causes = gaps.gap_causes(
        selection.config,
        selection.workload,
        selection.policy,
        selection.nested,
        counted,
        selection.counter_attention,
    )
    table = gaps.gap_table(causes)
    st.html(strip_html(gap_strip(table)))
    words = f"Analytic over what torch's counter found in our core (attention {selection.counter_attention})."
    operators = gaps.operator_gaps(selection.prediction, counted)
    figure.head(
        words,
        reproduce=f"{selection.report('--json')}\n{selection.measure()}",
        gaps=table,
        gaps_by_cause=causes,
        gaps_by_operator=operators,
    )
    spans = gaps.counted_spans(selection.prediction, counted)
    figure.plot(charts.cost_bars(spans, {"FLOPs": "FLOP"}), "counted", "Analytic and measured FLOPs by stage")
    if (table["gap"] != 0).any():
        figure.plot(charts.gap_bars(causes), "gaps", "Each stage's gap by cause")
    figure.table(gaps.shown_gaps(table), left=("stage",))
    with st.expander("By operator"):
        figure.table(gaps.shown_operator_gaps(operators), left=("stage", "operator"))


def gap_strip(table: pd.DataFrame) -> Strip:
    """The word for the gap, and its figures."""
    unexplained, gap = int(table[gaps.UNEXPLAINED].abs().sum()), int(table["gap"].abs().sum())
    word, tone = _gap_word(unexplained, gap)
    worst = table["gap_percent"].abs().max()
    facts = (
        ("measured", f"{int(table['measured'].sum()):,} FLOP"),
        ("largest gap of a stage", percent(worst if worst == worst else None)),
        ("unexplained", f"{unexplained:,} FLOP"),
    )
    return Strip(word, tone, facts)


def _gap_word(unexplained: int, gap: int) -> tuple[str, Tone]:
    if unexplained:
        return "UNEXPLAINED GAP", "differs"
    return ("EXPLAINED", "none") if gap else ("EXACT", "identical")

"""The tab Against measured of the FLOPs page: recorded times and torch's counts beside the prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import streamlit as st

from analytic_model import frames
from analytic_model.frames import UNEXPLAINED, WITH_VISION, Counted
from analytic_model.recorded import SHARED, Recorded, counted_points
from analytic_model.workload import Workload
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.words import amount, percent, plural, significant
from dsocr_core.engine.threads import wait_politely
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import computed_stages, inside_prefill, row_of
from dsocr_core.models.stages import Stage
from pages.widgets.flops import stages
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import bars, figure, job_panel, plots, resources, table
from pages.widgets.shared.job import Job
from pages.widgets.shared.job_panel import open_tab
from pages.widgets.shared.labels import backend_words
from pages.widgets.shared.stages import colour, stage_name
from pages.widgets.shared.strip import Strip, Tone, strip_html
from pages.widgets.shared.table import Column

_MOST_COUNTS = 32
_MARKS = {
    "bound": ("circle-open", 13, 3.0),
    "measured": ("diamond", 12, 0.8),
    "counted": ("triangle-up", 13, 0.8),
}
"""Symbol, size and edge of each kind of point under the roof."""
_TIMES = {
    "stage": Column("stage", stages.row_name, left=True),
    "measured_s": Column("recorded", "s"),
    "bound_s": Column("least time", "s"),
    "above_bound": Column(
        "above the least", lambda value: f"{significant(value)}x",
        "The recorded time over the least time.",
    ),
    "flops": Column("FLOPs", "FLOP"),
    "flops_per_s": Column("speed", "FLOP/s"),
    "mfu": Column("of peak", "share"),
    "bandwidth_share": Column("of bandwidth", "share"),
}  # fmt: skip


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """Times of what was recorded, the roofline, then FLOPs against torch's counter."""
    times = _clock(selection, selection.recorded) if selection.recorded is not None else None
    _roofline(selection, costs, times)
    _counter(selection)


# --- time -----------------------------------------------------------------------------------------


def _clock(selection: Selection, recorded: Recorded) -> pd.DataFrame | None:
    """Recorded times against the bound; None where there are none."""
    if not recorded.times:
        st.markdown("Time of this page: **not measured** in this run.")
        return None
    known = selection.bounds_recorded
    hardware = selection.hardware if known else None
    times = frames.times(selection.prediction, hardware, recorded.times, recorded.together)
    words = f"Time recorded on {recorded.device} by {backend_words(recorded.backend)} (n = 1)"
    words += f", over the least time on {selection.hardware.name}." if known else f". {_no_bound(selection)}"
    figure.head(words, reproduce=selection.report(), times=times)
    alone = times[times["stage"] != WITH_VISION].set_index("stage")
    rows = {"recorded": alone["measured_s"].to_dict()} | (
        {"least time": alone["bound_s"].to_dict()} if known else {}
    )
    bars.draw(stages.chart(rows, dict.fromkeys(rows, "s")), "Recorded time of each stage over its bound")
    table.draw(times.dropna(axis="columns", how="all"), _TIMES)  # without a bound none stands beside it
    return times


def _no_bound(selection: Selection) -> str:
    """Why there is no bound: the peaks of one device say nothing of another's times."""
    if selection.recorded and selection.recorded.together:
        return f"No bound: {SHARED}."
    device = selection.recorded.device if selection.recorded else ""
    return (
        f"No bound is known for {device}: the peaks shown are those of {selection.hardware.name}. Give what "
        "bench measured on that machine under Hardware, your own figures."
    )


def _roofline(selection: Selection, costs: pd.DataFrame, times: pd.DataFrame | None) -> None:
    # Under the roof of another device a time has no place.
    known = selection.bounds_recorded and times is not None
    points = frames.roofline_points(costs, times if known else None)
    words = "Rings: each stage at its bound. "
    if known:
        words += "Diamonds: as recorded; prefill is what vision leaves of it."
        counted = _profiled(selection)
        if len(counted):
            points = pd.concat([points, counted[list(points.columns)]], ignore_index=True)
            launches = plural(int(counted["launches"].sum()), "launch", "launches")
            words += (
                f" Triangles: {launches} under Nsight Compute, operations and bytes as counted, each alone."
            )
    elif selection.recorded is None:
        words += "Choose a run to show what was measured."
    figure.head(words, reproduce=selection.report("--json"), roofline=points)
    peak = selection.hardware.peak_flops(selection.policy.dtype)
    chart = plots.roofline(
        _drawn(points), [("roof", peak, "solid")], selection.hardware.bandwidth,
        {stage_name(stage): {"color": colour(stage), "symbol": "circle-open"}
         for stage in computed_stages() if stage in {*points["stage"]}},
    )  # fmt: skip
    figure.plot(chart, "roofline", "Stages under the roof")
    computes = costs.set_index("stage")["flops"] > 0
    idle = [stage for stage, has in computes.items() if stage != Stage.PREFILL and not has]
    if idle:
        st.caption(f"No FLOPs to show of: {', '.join(idle)}.")


def _profiled(selection: Selection) -> pd.DataFrame:
    """Find what Nsight Compute counted of this backend's stages on this device."""
    try:
        backend = selection.recorded.backend if selection.recorded else ""
        history, of = resources.history(), (backend, selection.hardware_name)
        return resources.held("flops counted", history.state, of, lambda: counted_points(history, *of))
    except (DsocrError, duckdb.Error):
        return pd.DataFrame({"launches": []})


def _drawn(points: pd.DataFrame) -> pd.DataFrame:
    """`frames.roofline_points` with what `plots.roofline` draws of each."""
    marks = [_MARKS[kind] for kind in points["kind"]]
    inside = points["stage"].isin([stage.value for stage in inside_prefill()])
    words = [
        f"{stage_name(row.stage)}, {row.kind}: {amount(row.flops_per_s, 'FLOP/s')} at "
        f"{amount(row.intensity, 'FLOP/B')}"
        for row in points.itertuples()
    ]
    return points.assign(
        group=[stage_name(stage) for stage in points["stage"]],
        symbol=[mark[0] for mark in marks],
        size=[mark[1] - 3 * small for mark, small in zip(marks, inside, strict=True)],
        edge=[mark[2] for mark in marks],
        words=words,
    )


# --- torch's counter ------------------------------------------------------------------------------

Work = tuple[ModelConfig, Workload, str]
"""Work that is counted: the last is the decoder's attention."""
Count = Callable[[ModelConfig, Workload, str, Callable[[Stage], None]], Counted]


def count_with_torch(
    config: ModelConfig, workload: Workload, attention: str, on_stage: Callable[[Stage], None]
) -> Counted:
    """Our core under torch's counter, on the meta device: no weights, no memory. Imports torch."""
    wait_politely()
    from analytic_model.measure import measure_workload

    return measure_workload(config, workload, attention, on_stage)


def counting_job(about: Work, count: Count = count_with_torch) -> Job[Counted]:
    """A count of that work. Cancelled, it stops before the next stage or token."""
    workload = about[1]
    # Towers and projector for each pass of equal views, fusion, prefill, every decoded token.
    steps = len(row_of(about[0]).vision) * len(workload.view_groups) + 1 + 1 + workload.decode_steps

    def work(job: Job[Counted]) -> Counted:
        announced = 0

        def on_stage(stage: Stage) -> None:
            nonlocal announced
            if job.token.is_set():
                raise Cancelled("the measurement was cancelled")
            job.say(f"counting {stage.value}", announced / steps)
            announced += 1

        job.say("getting torch ready")
        return count(*about, on_stage)

    return Job("FLOP measurement", about, work)


def _counter(selection: Selection) -> None:
    """Prediction against torch's counter."""
    measurement: Job[Counted] | None = st.session_state.get("flops measurement")
    mine = measurement is not None and measurement.about == _work(selection)
    if measurement is not None and measurement.running:
        job_panel.draw(measurement, "flops", "" if mine else "Other work than what is chosen now: ")
        if mine:
            return
    counted = _counted(selection)
    if counted is not None:
        _compared(selection, counted)
        return
    if measurement is not None and mine and not measurement.running:
        job_panel.ended(measurement, "nothing was counted")
    st.markdown("FLOPs of this work: **not measured** yet. Let torch's counter watch our core run it.")
    busy = measurement is not None and measurement.running
    if st.button("Measure FLOPs", type="primary", key="flops measure", disabled=busy):
        started = counting_job(_work(selection))
        st.session_state["flops measurement"] = started
        started.start(open_tab())
        st.rerun()
    st.caption(
        "On torch's meta device: shapes without values, so no weights and no memory are needed. "
        "About a second to begin with, then some 50 ms a new token."
    )


def _work(selection: Selection) -> Work:
    return selection.config, selection.workload, selection.counter_attention


def _counted(selection: Selection) -> Counted | None:
    """Find what torch counted of this very work, in this session; None when it has not."""
    counts: dict[Any, Counted] = st.session_state.setdefault("flops counts", {})
    measurement: Job[Counted] | None = st.session_state.get("flops measurement")
    if measurement is not None and measurement.result is not None:
        counts[measurement.about] = measurement.result
        while len(counts) > _MOST_COUNTS:
            counts.pop(next(iter(counts)))
    return counts.get(_work(selection))


def _compared(selection: Selection, counted: Counted) -> None:
    gaps = frames.gaps(
        selection.config, selection.workload, selection.policy, selection.nested, counted,
        selection.counter_attention,
    )  # fmt: skip
    st.html(strip_html(gap_strip(gaps)))
    words = f"Analytic over what torch's counter found in our core (attention {selection.counter_attention})."
    operators = frames.operator_gaps(selection.prediction, counted)
    commands = [selection.report("--json"), f"dsocr flops verify --config {selection.shown_path}"]
    figure.head(words, reproduce="\n".join(commands), gaps=gaps, gaps_by_operator=operators)
    rows = {side: gaps.set_index("stage")[side].to_dict() for side in ("analytic", "measured")}
    if selection.nested:  # its bar has the vision in it anyway
        rows["analytic"] = {stage: cost.cost.flops for stage, cost in selection.prediction.stages.items()}
    bars.draw(stages.chart(rows, dict.fromkeys(rows, "FLOP")), "Analytic and measured FLOPs by stage")
    table.draw(gaps, _gap_columns(gaps))
    with st.expander("By operator"):
        count = {name: Column(name, "count") for name in ("analytic", "measured", "gap")}
        named = {"stage": Column("stage", stages.row_name, left=True), "operator": Column("operator")}
        table.draw(operators, named | count)


def _gap_columns(gaps: pd.DataFrame) -> dict[str, Column]:
    """Causes that explain nothing are left out."""
    nested = (gaps["nesting"] != 0).any()
    name = WITH_VISION if nested else stages.row_name(Stage.PREFILL)
    causes = [cause for cause in frames.CAUSES if (gaps[cause] != 0).any()]
    return {
        "stage": Column(
            "stage", lambda stage: name if stage == Stage.PREFILL else stages.row_name(stage), left=True
        ),
        "analytic": Column("analytic", "FLOP"),
        "measured": Column("measured", "FLOP"),
        "gap": Column("gap", "+FLOP"),
        "gap_share": Column("gap (%)", "share"),
        **{cause: Column(cause, "+FLOP") for cause in (*causes, UNEXPLAINED)},
    }


def gap_strip(gaps: pd.DataFrame) -> Strip:
    """The word for the gap, and its figures."""
    unexplained, gap = int(gaps[UNEXPLAINED].abs().sum()), int(gaps["gap"].abs().sum())
    tone: Tone = "differs" if unexplained else "none" if gap else "identical"
    word = "UNEXPLAINED GAP" if unexplained else "EXPLAINED" if gap else "EXACT"
    facts = (
        ("measured", f"{int(gaps['measured'].sum()):,} FLOP"),
        ("largest gap of a stage", percent(100 * gaps["gap_share"].abs().max())),
        ("unexplained", f"{unexplained:,} FLOP"),
    )
    return Strip(word, tone, facts)

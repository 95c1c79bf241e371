"""The tab Against measured of the FLOPs page: recorded times beside the prediction."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analytic_model import frames
from analytic_model.frames import WITH_VISION
from analytic_model.recorded import SHARED, Recorded
from dsocr_core.base.words import amount, significant
from dsocr_core.models.family import computed_stages, inside_prefill
from dsocr_core.models.stages import Stage
from pages.widgets.flops import stages
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import bars, figure, plots, table
from pages.widgets.shared.labels import backend_words
from pages.widgets.shared.stages import colour, stage_name
from pages.widgets.shared.table import Column

_MARKS = {
    "bound": ("circle-open", 13, 3.0),
    "measured": ("diamond", 12, 0.8),
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
    """Times of what was recorded, and the roofline."""
    times = _clock(selection, selection.recorded) if selection.recorded is not None else None
    _roofline(selection, costs, times)


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
        f"No bound is known for {device}: the peaks shown are those of {selection.hardware.name}. Choose"
        " it under Hardware."
    )


def _roofline(selection: Selection, costs: pd.DataFrame, times: pd.DataFrame | None) -> None:
    # Under the roof of another device a time has no place.
    known = selection.bounds_recorded and times is not None
    points = frames.roofline_points(costs, times if known else None)
    words = "Rings: each stage at its bound. "
    if known:
        words += "Diamonds: as recorded; prefill is what vision leaves of it."
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

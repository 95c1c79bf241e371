"""The tabs of the FLOPs page. Only the open one is computed."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analytic_model.history_of_estimate import waterfall
from analytic_model.predict import kv_cache_bytes
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.flops import (
    bounds,
    charts,
    earlier_tab,
    measured_tab,
    old_estimate,
    profiled,
    requirements_tab,
    sweeps_tab,
    tables,
)
from pages.widgets.flops.address import VIEWS, key, text
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import bars, figure
from pages.widgets.shared.amounts import amount, scale_of
from pages.widgets.shared.bars import Bar, BarRow, legend_html, panel_html
from pages.widgets.shared.charts import STAGE_COLOURS
from pages.widgets.shared.formats import percent, plural
from pages.widgets.shared.strip import Strip, strip_html


def draw(selection: Selection) -> None:
    """The strip and the tabs."""
    costs = tables.stage_costs(selection.prediction, selection.hardware)
    st.html(strip_html(strip_of(selection, costs)))
    drawers = (
        _stages, measured_tab.draw, _roofline, _crossing, _operators, sweeps_tab.draw, requirements_tab.draw,
        _old_estimate, earlier_tab.draw,
    )  # fmt: skip
    tabs = st.tabs(list(VIEWS), key=key("view"), on_change="rerun")
    for tab, drawer in zip(tabs, drawers, strict=True):
        if tab.open:
            with tab:
                drawer(selection, costs)


def strip_of(selection: Selection, costs: pd.DataFrame) -> Strip:
    """The workload and its sums in one line."""
    work, hardware = selection.workload, selection.hardware
    columns, rows = work.grid
    cache = kv_cache_bytes(selection.config.decoder, work.cached_length, selection.policy.dtype, work.batch)
    grid = f", tiles {columns} x {rows}" if work.tile_count else ""
    facts = (
        ("", f"{selection.size[0]:,} x {selection.size[1]:,} px, {selection.preset}{grid}"),
        ("views", f"{work.num_views}"),
        ("prompt", f"{work.image_tokens:,} image + {work.prompt_tokens:,} text"),
        ("new", f"{work.decode_tokens:,}"),
        *((("pages at once", f"{work.batch}"),) if work.batch > 1 else ()),
        ("work", amount(costs["flops"].sum(), "FLOP")),
        ("KV cache size", amount(cache, "B")),
        ("least time", f"{amount(costs['bound_s'].sum(), 's')} on {hardware.name}"),
    )
    return Strip("", "none", facts, f"{selection.policy.dtype}, {selection.policy.attention}")


# --- Stages ---------------------------------------------------------------------------------------


def _stages(selection: Selection, costs: pd.DataFrame) -> None:
    words = "What is computed, what has to move however it is fused, and the least time of both."
    figure.head(words, reproduce=selection.report(), stages=costs)
    spans = tables.cost_spans(costs)
    bars.draw(stage_bars(spans), "FLOPs, bytes and least time by stage")
    figure.table(
        tables.shown_costs(costs, selection.prediction.parameters["total"]),
        left=("stage",),
        about=tables.ABOUT,
    )
    _not_counted(selection)


def stage_bars(spans: pd.DataFrame) -> str:
    """`tables.cost_spans` as HTML: a panel an amount, each with its own axis."""
    panels = []
    for panel, unit in tables.COST_UNITS.items():
        here = spans[spans["panel"] == panel].to_dict("records")
        longest = max((part["start"] + part["amount"] for part in here), default=0.0)
        scale, named = scale_of(longest, unit)
        row = BarRow(
            panel,
            [
                Bar(
                    part["start"], part["amount"], STAGE_COLOURS[part["stage"]],
                    f"{charts.legend_name(Stage(part['stage']))}: {amount(part['amount'], unit)}",
                    part["inside"],
                )
                for part in here
            ],
            end=amount(longest, unit),
        )  # fmt: skip
        panels.append(panel_html([row], named, scale))
    legend = legend_html({charts.legend_name(stage): STAGE_COLOURS[stage] for stage in charts.COSTLY})
    return legend + "".join(panels)


def _not_counted(selection: Selection) -> None:
    with st.expander("What is not counted"):
        st.markdown("\n".join(f"- {note}" for note in selection.prediction.not_counted))
        st.caption(f"Peaks of {selection.hardware.name}: {selection.hardware.source}")


# --- Roofline -------------------------------------------------------------------------------------


def _roofline(selection: Selection, costs: pd.DataFrame) -> None:
    recorded = None
    if selection.recorded is not None:
        recorded = bounds.times(selection.prediction, selection.hardware, selection.recorded)
    # Under the roof of another device a time has no place.
    points = bounds.roofline_points(costs, recorded if selection.on_recorded_device else None)
    words = "Rings: each stage at its bound. "
    if selection.recorded is not None and not selection.on_recorded_device:
        recorded = bounds.without_bound(recorded) if recorded is not None else None
        words += bounds.no_bound_words(selection.recorded.device, selection.hardware.name)
    elif recorded is None:
        words += "Choose a sample or a run to show what was measured."
    else:
        words += "Diamonds: as recorded; prefill is what vision leaves of it."
    if selection.recorded is not None and selection.on_recorded_device:
        counted = profiled.counted_points(selection.recorded.backend, selection.hardware_name)
        if len(counted):
            points = pd.concat([points, counted[list(points.columns)]], ignore_index=True)
            launches = plural(int(counted["launches"].sum()), "launch", "launches")
            words += (
                f" Triangles: {launches} under Nsight Compute, operations and bytes as counted, each alone."
            )
    frames = {"roofline": points} | ({} if recorded is None else {"recorded": recorded})
    figure.head(words, reproduce=selection.report("--json"), **frames)
    peak = selection.hardware.peak_flops(selection.policy.dtype)
    figure.plot(
        charts.roofline(points, peak, selection.hardware.bandwidth), "roofline", "Stages under the roof"
    )
    if recorded is not None:
        figure.table(bounds.shown_times(recorded), left=("stage",))
    idle = [stage.value for stage in (*INSIDE_PREFILL, Stage.DECODE) if not _computes(costs, stage)]
    if idle:
        st.caption(f"No FLOPs to show of: {', '.join(idle)}.")


def _computes(costs: pd.DataFrame, stage: Stage) -> bool:
    return bool(costs.loc[costs["stage"] == stage, "flops"].iloc[0] > 0)


# --- Crossing -------------------------------------------------------------------------------------


def _crossing(selection: Selection, costs: pd.DataFrame) -> None:
    st.segmented_control(
        "Over", ["batch", "prompt"], required=True, key=key("over"), label_visibility="collapsed",
        format_func={"batch": "Decode, pages at once", "prompt": "Prefill, positions"}.__getitem__,
    )  # fmt: skip
    if text("over") == "batch":
        stage, label, chosen = Stage.DECODE, "pages at once, one new token each", selection.workload.batch
        sweep = bounds.decode_sweep(
            selection.config, selection.workload, selection.policy, selection.hardware
        )
        what = "The first token after prefill, of each page."
    else:
        stage, label = Stage.PREFILL, "positions of the prompt, image included"
        chosen = selection.workload.sequence_length
        sweep = bounds.prefill_sweep(selection.config, selection.policy, selection.hardware)
        what = "The language model's prefill of one page."
    at = bounds.cross_at(sweep)
    if at is not None:
        words = (
            f"{what} From {at[0]:,.0f} {label.split(',')[0]} on, computing takes longer than moving bytes."
        )
    else:
        always = "computing" if sweep["compute_s"].iloc[0] >= sweep["memory_s"].iloc[0] else "moving bytes"
        words = f"{what} Over all of these, {always} takes longer."
    figure.head(words, reproduce=selection.report_over(text("over")), crossing=sweep)
    figure.plot(charts.crossing(sweep, stage, label, at, chosen), "crossing", words)


# --- Operators ------------------------------------------------------------------------------------


def _operators(selection: Selection, costs: pd.DataFrame) -> None:
    stages = [stage.value for stage in selection.prediction.stages]
    st.segmented_control(
        "Stage", stages, required=True, key=key("stage"), label_visibility="collapsed",
        format_func=lambda name: charts.legend_name(Stage(name)),
    )  # fmt: skip
    stage = selection.prediction.stages[Stage(text("stage"))]
    frame = tables.operators(stage)
    words = f"{plural(len(frame), 'operator')} over all layers and runs, the largest first."
    figure.head(words, reproduce=selection.report("--json"), **{f"operators_{stage.stage.value}": frame})
    shown = tables.shown_operators(frame)
    bar = st.column_config.ProgressColumn(format="%.1f %%", min_value=0, max_value=100)
    right = st.column_config.Column(alignment="right")
    st.dataframe(
        shown, hide_index=True, height="content" if len(shown) <= 24 else 780, placeholder="",
        column_config={"of FLOPs": bar, "of bytes": bar, "operator": st.column_config.Column(width=110)}
        | dict.fromkeys(("calls", "FLOPs", "other", "read", "written", "parameters"), right),
    )  # fmt: skip


# --- Old estimate ---------------------------------------------------------------------------------


def _old_estimate(selection: Selection, costs: pd.DataFrame) -> None:
    steps = waterfall(selection.config, selection.workload, selection.policy)
    frame = old_estimate.estimate_steps(steps, measured_tab.counted_flops(selection))
    first, last = (frame.loc[frame["label"] == frame["label"].iloc[end], "flops"].sum() for end in (0, -1))
    words = f"The first estimate of vision was {_off(first, last)}: what each of its assumptions cost."
    figure.head(words, reproduce=selection.waterfall(), old_estimate=frame)
    figure.plot(charts.estimate_waterfall(frame), "old estimate", words)
    figure.table(old_estimate.shown_estimate(frame), left=("step", "takes for true"))


def _off(estimated: float, true: float) -> str:
    if not true or estimated == true:
        return "right"
    return f"{percent(100 * abs(estimated - true) / true)} too {'low' if estimated < true else 'high'}"

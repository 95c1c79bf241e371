"""The tab Sweep of the FLOPs page: any quantity over any axis, and where computing begins to take longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pandas as pd
import streamlit as st

from analytic_model.sweep import (
    AXES,
    AXIS_WORDS,
    ENGINES,
    QUANTITY_WORDS,
    UNITS,
    Axis,
    Engine,
    Point,
    Quantity,
    as_rows,
    crossing,
    spread,
    sweep,
)
from dsocr_core.base.words import plural
from dsocr_core.models.stages import Stage
from pages.widgets.flops.address import CUSTOM, LIMITS, PARAMETERS, key, number_input, put, text, value
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import bars, figure, plots
from pages.widgets.shared.plots import Series
from pages.widgets.shared.stages import colour, legend, stage_name

POINTS = 60
_ALIKE = "alike"
"""Stands for eager and flash where they are one curve."""
USUAL_END: dict[Axis, int] = {
    "tiles": 40, "image-tokens": 5_000, "decode": 2_000, "prompt": 4_000, "batch": 256, "context": 8_192,
}  # fmt: skip
_SHORT: dict[str, str] = {
    "tiles": "Tiles", "image-tokens": "Image tokens", "decode": "New tokens", "prompt": "Prompt",
    "batch": "Batch", "context": "Context", "flops": "FLOPs", "bytes": "Traffic", "kv": "KV cache",
    "activations": "Activations", "time": "Time", LIMITS: "Compute or memory", "both": "Both",
    "eager": "Eager", "flash": "Flash", _ALIKE: "Eager and flash", "totals": "Totals",
    "stages": "Stages", "linear": "Linear", "log": "Log",
}  # fmt: skip
_LINES = {"eager": ("#4C6EF5", "solid"), "flash": ("#B07AA1", "dash"), _ALIKE: ("#4C6EF5", "solid")}
"""Colour and dash of each curve."""


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """The controls, the curves and their figures."""
    _controls()
    if text("quantity") == LIMITS:
        _limits(selection)
        return
    axis, quantity = cast(Axis, text("axis")), cast(Quantity, text("quantity"))
    engines = ENGINES if text("engines") == "both" else (cast(Engine, text("engines")),)
    points = _swept(selection, quantity, engines)
    frame = pd.DataFrame(as_rows(points, axis, quantity))
    words = f"{QUANTITY_WORDS[quantity].capitalize().replace('Flops', 'FLOPs').replace('kv', 'KV')}"
    words += f" over {AXIS_WORDS[axis]}; {plural(len(points) // len(engines), 'point')}."
    figure.head(words, reproduce=_command(selection, quantity, engines), sweep=frame)
    half = len(points) // 2
    if len(engines) > 1 and all(
        a.stages == b.stages for a, b in zip(points[:half], points[half:], strict=True)
    ):
        frame = frame[frame["engine"] == engines[0]].assign(engine=_ALIKE)
    log, unit, drawn = text("sweep_scale") == "log", UNITS[quantity], frame.groupby("engine")
    if text("sweep_as") == "totals":
        series = [
            Series(_SHORT[str(engine)], part[axis], part["total"], *_LINES[str(engine)])
            for engine, part in drawn
        ]
        figure.plot(plots.lines(series, AXIS_WORDS[axis], unit, log), f"sweep {axis} {quantity}", words)
        return
    bars.draw(legend(selection.prediction.stages), "The colours of the stages")
    for column, (engine, part) in zip(st.columns(len(drawn)), drawn, strict=True):
        series = [
            Series(stage_name(stage), part[axis], part[stage], colour(stage), stack=not log)
            for stage in selection.prediction.stages
            if part[stage].any()
        ]
        with column:
            st.caption(f"{_SHORT[str(engine)]} attention")
            chart = plots.lines(series, AXIS_WORDS[axis], unit, log, legend=False)
            figure.plot(chart, f"sweep {axis} {quantity} {engine}", words)


def _swept(selection: Selection, quantity: Quantity, engines: Sequence[Engine]) -> list[Point]:
    axis = cast(Axis, text("axis"))
    values = spread(1, _end(), POINTS)
    with st.spinner(f"Computing {len(values)} points"):  # a million tiles take seconds
        return sweep(
            selection.config, selection.workload, axis, values, quantity, engines, selection.hardware,
            selection.policy,
        )  # fmt: skip


def _end() -> int:
    usual = USUAL_END[cast(Axis, text("axis"))]
    return int(value("upto") or 0) or (
        16 * usual if text("quantity") == LIMITS and text("axis") == "batch" else usual
    )


def _limits(selection: Selection) -> None:
    """The least time of computing and of moving bytes: of decode, or of prefill where the axis is its own."""
    axis = cast(Axis, text("axis"))
    stage = Stage.PREFILL if axis in ("tiles", "image-tokens", "prompt") else Stage.DECODE
    found = [_swept(selection, quantity, ("flash",)) for quantity in ("compute", "memory")]
    x = [point.x for point in found[0]]
    compute, memory = ([point.stages[stage] for point in points] for points in found)
    at = crossing(x, compute, memory)
    what = "The language model's prefill" if stage == Stage.PREFILL else "Decode"
    if at is not None:
        words = f"{what}: from {at[0]:,.0f} {AXIS_WORDS[axis]} on, computing takes longer than moving bytes."
    else:
        longer = "computing" if compute[0] >= memory[0] else "moving bytes"
        words = f"{what}: over all of these {AXIS_WORDS[axis]}, {longer} takes longer."
    frame = pd.DataFrame({axis: x, "stage": stage.value, "compute_s": compute, "memory_s": memory})
    commands = [_command(selection, quantity, ("flash",)) for quantity in ("compute", "memory")]
    figure.head(words, reproduce="\n".join(commands), limits=frame)
    shade, log = colour(stage), text("sweep_scale") == "log"
    series = [Series("computing", x, compute, shade), Series("moving bytes", x, memory, shade, "dash")]
    if at is not None:
        series.append(Series(f"as long, at {at[0]:,.0f}", [at[0]], [at[1]], plots.NEUTRAL, symbol="circle"))
    figure.plot(plots.lines(series, AXIS_WORDS[axis], "s", log), f"limits {axis}", words)


def _controls() -> None:
    left, right = st.columns([4.6, 1.4], vertical_alignment="bottom")
    left.segmented_control(
        "Over", AXES, required=True, key=key("axis"), width="stretch", format_func=_SHORT.__getitem__,
        on_change=put, args=("upto", 0),
    )  # fmt: skip
    number_input(right, "Up to", "upto", step=10, help="0: as far as is usual.")
    st.segmented_control(
        "Quantity", PARAMETERS["quantity"].choices, required=True, key=key("quantity"), width="stretch",
        format_func=_SHORT.__getitem__, on_change=put, args=("upto", 0),
    )  # fmt: skip
    for column, name, label in zip(
        st.columns([2, 1.5, 1.5]),
        ("engines", "sweep_as", "sweep_scale"),
        ("Attention", "Shown as", "Scale"),
        strict=True,
    ):
        column.segmented_control(
            label, PARAMETERS[name].choices, required=True, key=key(name), width="stretch",
            format_func=_SHORT.__getitem__,
            disabled=text("quantity") == LIMITS and name != "sweep_scale",
        )  # fmt: skip


def _command(selection: Selection, quantity: Quantity, engines: Sequence[Engine]) -> str:
    hardware = selection.hardware_name if selection.hardware_name != CUSTOM else "h200"
    return selection.command(
        "sweep", "--hardware", hardware, "--axis", text("axis"), "--quantity", quantity,
        "--engine", *engines, "--from", "1", "--to", str(_end()), "--points", str(POINTS),
    )  # fmt: skip

"""The tab Sweeps of the FLOPs page: any quantity over any axis, eager and flash attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pandas as pd
import streamlit as st

from analytic_model.sweep import (
    AXES,
    AXIS_WORDS,
    ENGINES,
    QUANTITIES,
    QUANTITY_WORDS,
    UNITS,
    Axis,
    Engine,
    Point,
    Quantity,
    as_rows,
    spread,
    sweep,
)
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.flops import earlier, sweep_charts
from pages.widgets.flops.address import CUSTOM, PARAMETERS, key, put, text, value
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import figure
from pages.widgets.shared.formats import plural

POINTS = 60
USUAL_END: dict[Axis, int] = {
    "tiles": 40, "image-tokens": 5_000, "decode": 2_000, "prompt": 4_000, "batch": 256, "context": 8_192,
}  # fmt: skip
_SHORT: dict[str, str] = {
    "tiles": "Tiles", "image-tokens": "Image tokens", "decode": "New tokens", "prompt": "Prompt",
    "batch": "Batch", "context": "Context", "flops": "FLOPs", "bytes": "Traffic", "kv": "KV cache",
    "activations": "Activations", "time": "Time", "both": "Both", "eager": "Eager", "flash": "Flash",
    "totals": "Totals", "stages": "Stages", "linear": "Linear", "log": "Log",
}  # fmt: skip


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """The controls, the curves and their figures."""
    _controls()
    axis, quantity = cast(Axis, text("axis")), cast(Quantity, text("quantity"))
    end = int(value("upto") or 0) or USUAL_END[axis]
    engines = ENGINES if text("engines") == "both" else (cast(Engine, text("engines")),)
    values = spread(1, end, POINTS)
    points = sweep(
        selection.config, selection.workload, axis, values, quantity, engines, selection.hardware,
        selection.policy,
    )  # fmt: skip
    frame = pd.DataFrame(as_rows(points, axis, quantity))
    dots = _counted(axis, quantity, end)
    if len(dots):
        frame = frame.assign(vision_and_prefill=[until_first_token(point) for point in points])
    words = f"{QUANTITY_WORDS[quantity].capitalize().replace('Flops', 'FLOPs').replace('kv', 'KV')}"
    words += f" over {AXIS_WORDS[axis]}; {plural(len(points) // len(engines), 'point')}."
    words += _same(points, engines)
    if len(dots):
        words += (
            " Dots: what torch counted in the published code, vision and prefill, logits of all positions."
        )
    frames = {"sweep": frame} | ({"counted": dots} if len(dots) else {})
    figure.head(words, reproduce=_command(selection, axis, quantity, engines, end), **frames)
    chart = sweep_charts.stacked if text("sweep_as") == "stages" else sweep_charts.totals
    figure.plot(
        chart(frame, axis, AXIS_WORDS[axis], UNITS[quantity], text("sweep_scale") == "log", dots),
        f"sweep {axis} {quantity}",
        words,
    )


def _controls() -> None:
    left, right = st.columns([3.4, 2.6], vertical_alignment="bottom")
    left.segmented_control(
        "Over", AXES, required=True, key=key("axis"), width="stretch", format_func=_SHORT.__getitem__,
        on_change=put, args=("upto", 0),
    )  # fmt: skip
    right.segmented_control(
        "Quantity", QUANTITIES, required=True, key=key("quantity"), width="stretch",
        format_func=_SHORT.__getitem__,
    )  # fmt: skip
    columns = st.columns([2, 1.5, 1.5, 1.2], vertical_alignment="bottom")
    for column, name, label in zip(
        columns, ("engines", "sweep_as", "sweep_scale"), ("Attention", "Shown as", "Scale"), strict=False
    ):
        column.segmented_control(
            label, PARAMETERS[name].choices, required=True, key=key(name), width="stretch",
            format_func=_SHORT.__getitem__,
        )  # fmt: skip
    columns[3].number_input("Up to", min_value=0, step=10, key=key("upto"), help="0: as far as is usual.")


def until_first_token(point: Point) -> float:
    """Vision and prefill together."""
    return sum(point.stages.get(stage, 0) for stage in (*INSIDE_PREFILL, Stage.PREFILL))


def _same(points: Sequence[Point], engines: Sequence[Engine]) -> str:
    """A sentence where both engines have one curve."""
    if len(engines) < 2:
        return ""
    half = len(points) // 2
    equal = all(a.stages == b.stages for a, b in zip(points[:half], points[half:], strict=True))
    return " Eager and flash attention are the same here: one curve." if equal else ""


def _counted(axis: Axis, quantity: Quantity, end: int) -> pd.DataFrame:
    """Counts of torch on the published code, from imported sweeps: x, flops, grid."""
    if quantity != "flops" or axis not in ("tiles", "image-tokens"):
        return pd.DataFrame(columns=["x", "flops", "grid"])
    return earlier.counted_dots(axis, end)


def _command(
    selection: Selection, axis: Axis, quantity: Quantity, engines: Sequence[Engine], end: int
) -> str:
    hardware = selection.hardware_name if selection.hardware_name != CUSTOM else "h200"
    return selection.command(
        "sweep", "--hardware", hardware, "--axis", axis,
        "--quantity", quantity, "--engine", *engines, "--from", "1", "--to", str(end),
        "--points", str(POINTS),
    )  # fmt: skip

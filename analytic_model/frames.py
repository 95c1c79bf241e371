"""Tables of costs, times and gaps as DataFrames of plain numbers: in FLOP, bytes, seconds, and shares of 1.

What the FLOPs page shows and the shell prints is these frames; nothing in them is text but names.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import pandas as pd

from analytic_model import roofline
from analytic_model.hardware import Hardware
from analytic_model.policy import Dtype
from analytic_model.predict import Prediction, StageCost
from analytic_model.requirements import Requirements
from dsocr_core.models.stages import Stage

WITH_VISION, EVERYTHING = "prefill with vision", "everything"
"""Rows that sum up others: prefill as a clock sees it, and all stages once."""

Times = Mapping[Stage, float]
"""Recorded milliseconds; prefill has the vision stages in it. A stage that was not timed is left out."""


# --- costs ----------------------------------------------------------------------------------------


def stage_costs(prediction: Prediction, hardware: Hardware) -> pd.DataFrame:
    """Make a row of each stage, prefill being the language model alone."""
    dtype = prediction.policy.dtype
    return pd.DataFrame([cost_row(name, cost, hardware, dtype) for name, cost in prediction.stages.items()])


def cost_row(name: str, stage: StageCost, hardware: Hardware, dtype: Dtype) -> dict[str, Any]:
    """Make a row of what a stage costs."""
    cost, bound = stage.cost, roofline.bound(stage, hardware, dtype)
    return {
        "stage": str(name),
        "flops": cost.flops,
        "compulsory_bytes": bound.bytes,
        "intensity_flop_per_byte": bound.intensity,
        "bound_s": bound.time_ms / 1e3,
        "bound_by": bound.limit,
        "weight_bytes": cost.weight_bytes,
        "kv_bytes": cost.kv_bytes,
        "bytes_read": cost.bytes_read,
        "bytes_written": cost.bytes_written,
        "activation_bytes": cost.activation_bytes,
        "other_flops": cost.other_flops,
        "compute_s": bound.compute_ms / 1e3,
        "memory_s": bound.memory_ms / 1e3,
        "parameters": cost.parameters,
    }


def summed_costs(costs: pd.DataFrame, parameters: int) -> pd.DataFrame:
    """`stage_costs` with the rows WITH_VISION and EVERYTHING; `parameters` are the whole model's."""
    inner = len(costs) - 1  # all but decode

    def row(part: pd.DataFrame, name: str) -> pd.DataFrame:
        sums = part.sum(numeric_only=True).to_dict() | {"stage": name, "bound_by": "sum"}
        moved = sums["compulsory_bytes"]
        return pd.DataFrame([sums | {"intensity_flop_per_byte": sums["flops"] / moved if moved else 0.0}])

    whole = row(costs, EVERYTHING).assign(parameters=parameters)
    parts = [costs[:inner], row(costs[:inner], WITH_VISION), costs[inner:], whole]
    found = pd.concat(parts, ignore_index=True)[costs.columns]
    return found.astype({name: kind for name, kind in costs.dtypes.items() if kind == "int64"})


def operators(stage: StageCost) -> pd.DataFrame:
    """Every operator of a stage over all layers, views and runs, the largest first."""
    names = ["module", "operator"]
    sums = ["calls", "flops", "other_flops", "bytes_read", "bytes_written", "parameters"]
    rows = [
        (
            operator.module,
            operator.operator,
            operator.calls,
            *(getattr(operator.cost, name) for name in sums[1:]),
        )
        for operator in stage.operators
    ]
    frame = pd.DataFrame(rows, columns=[*names, *sums]).groupby(names, sort=False, as_index=False).sum()
    moved = frame["bytes_read"] + frame["bytes_written"]
    frame["share_of_flops"] = frame["flops"] / max(frame["flops"].sum(), 1)
    frame["share_of_bytes"] = moved / max(moved.sum(), 1)
    return frame.sort_values(["flops", "bytes_read"], ascending=False, ignore_index=True)


# --- recorded times -------------------------------------------------------------------------------


def times(
    prediction: Prediction, hardware: Hardware | None, recorded: Times, together: bool = False
) -> pd.DataFrame:
    """Each stage's recorded time beside its bound, prefill both alone and as a clock sees it (WITH_VISION).

    The language model's own time is what vision leaves of prefill. NaN where no time was recorded, and for
    all that needs the device's peaks where they are not known (`hardware` None), and of pages read `together`
    for all that needs a page's own time and traffic: they share both.
    """
    dtype = prediction.policy.dtype
    rows = []
    inner = [stage for stage in prediction.stages if stage != Stage.DECODE]
    for name in (*inner, WITH_VISION, Stage.DECODE):
        nested = name == WITH_VISION
        stage = Stage.PREFILL if nested else Stage(name)
        cost = prediction.with_nested(stage) if nested else prediction.stages[stage]
        measured = recorded.get(stage)
        if stage == Stage.PREFILL and not nested and measured is not None:
            measured -= sum(recorded.get(part, 0.0) for part in inner[:-1])
        seconds = measured / 1e3 if measured is not None and measured > 0 else nan
        moved = cost.compulsory_bytes
        row: dict[str, Any] = {
            "stage": str(name), "measured_s": seconds, "flops": cost.cost.flops, "bytes": moved,
            "intensity": cost.cost.flops / moved if moved else 0.0, "flops_per_s": cost.cost.flops / seconds,
        }  # fmt: skip
        if together:
            row |= dict.fromkeys(("bytes", "intensity", "flops_per_s"), nan)
        elif hardware is not None:
            bound_ms = (
                roofline.prefill_ms(prediction, hardware)
                if nested
                else roofline.bound(cost, hardware, dtype).time_ms
            )
            row |= {
                "bound_s": bound_ms / 1e3,
                "above_bound": 1e3 * seconds / bound_ms if bound_ms else nan,
                "mfu": row["flops_per_s"] / hardware.peak_flops(dtype),
                "bandwidth_share": moved / seconds / hardware.bandwidth,
            }
        rows.append(row)
    columns = ["stage", "measured_s", "bound_s", "above_bound", "flops", "bytes", "intensity", "flops_per_s",
               "mfu", "bandwidth_share"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def roofline_points(costs: pd.DataFrame, recorded: pd.DataFrame | None = None) -> pd.DataFrame:
    """Place the stages: on the roof by their bound and, where `times` are given, below it as recorded.

    Columns stage, kind, intensity in FLOP/B, flops_per_s. Prefill is the language model alone.
    """
    costly = costs[costs["bound_s"] > 0]
    on_roof = costly[["stage"]].assign(
        kind="bound",
        intensity=costly["intensity_flop_per_byte"],
        flops_per_s=costly["flops"] / costly["bound_s"],
    )
    if recorded is None:
        return on_roof.reset_index(drop=True)
    timed = recorded[(recorded["stage"] != WITH_VISION) & recorded["flops_per_s"].notna()]
    points = timed[["stage", "intensity", "flops_per_s"]].assign(kind="measured")
    return pd.concat([on_roof, points[on_roof.columns]], ignore_index=True)


# --- requirements ---------------------------------------------------------------------------------


def needs(needed: Requirements) -> pd.DataFrame:
    """A row a stage and one for all: stage, flops, bytes, flops_per_s, bytes_per_s."""
    named = [*((stage.value, need) for stage, need in needed.stages.items()), (EVERYTHING, needed.total)]
    rows = [(name, each.flops, each.bytes, each.flops_per_s, each.bytes_per_s) for name, each in named]
    return pd.DataFrame(rows, columns=["stage", "flops", "bytes", "flops_per_s", "bytes_per_s"])


def devices(needed: Requirements) -> pd.DataFrame:
    """A row a device, fastest first: hardware, least_s, share, peak_share, bandwidth_share, reaches."""
    rows = [
        (
            each.hardware.name,
            each.least_ms / 1e3,
            each.share,
            each.peak_share,
            each.bandwidth_share,
            each.possible,
        )
        for each in needed.devices
    ]
    columns = ["hardware", "least_s", "share", "peak_share", "bandwidth_share", "reaches"]
    return pd.DataFrame(rows, columns=columns)

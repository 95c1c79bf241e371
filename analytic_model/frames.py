"""Tables of costs as DataFrames of plain numbers: in FLOP, bytes, seconds, shares of 1."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analytic_model import roofline
from analytic_model.hardware import Hardware
from analytic_model.policy import Dtype
from analytic_model.predict import Prediction
from analytic_model.stage_cost import StageCost

WITH_VISION, EVERYTHING = "prefill with vision", "everything"
"""Names of rows with sums: prefill including vision, and all stages."""


def stage_costs(prediction: Prediction, hardware: Hardware) -> pd.DataFrame:
    """A row for each stage. Prefill is the language model alone."""
    dtype = prediction.policy.dtype
    return pd.DataFrame([cost_row(name, cost, hardware, dtype) for name, cost in prediction.stages.items()])


def cost_row(name: str, stage: StageCost, hardware: Hardware, dtype: Dtype) -> dict[str, Any]:
    """A row with the cost of a stage."""
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
    """`stage_costs` with rows WITH_VISION and EVERYTHING. `parameters` are those of the whole model."""
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
    """Operators of a stage, summed over layers, views and runs, the largest first."""
    names = ["module", "operator"]
    sums = ["calls", "flops", "other_flops", "bytes_read", "bytes_written", "parameters"]
    rows = [
        (each.module, each.operator, each.calls, *(getattr(each.cost, name) for name in sums[1:]))
        for each in stage.operators
    ]
    frame = pd.DataFrame(rows, columns=[*names, *sums]).groupby(names, sort=False, as_index=False).sum()
    moved = frame["bytes_read"] + frame["bytes_written"]
    frame["share_of_flops"] = frame["flops"] / max(frame["flops"].sum(), 1)
    frame["share_of_bytes"] = moved / max(moved.sum(), 1)
    return frame.sort_values(["flops", "bytes_read"], ascending=False, ignore_index=True)

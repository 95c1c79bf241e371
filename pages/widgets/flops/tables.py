"""What a workload costs, as DataFrames. Pure: a prediction in, tables out."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analytic_model import roofline
from analytic_model.hardware import Hardware
from analytic_model.predict import STAGES, Prediction, StageCost
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.shared.amounts import amount
from pages.widgets.shared.formats import significant


def stage_costs(prediction: Prediction, hardware: Hardware) -> pd.DataFrame:
    """One row a stage, prefill being the language model alone, in FLOP, bytes and seconds."""
    rows = []
    for stage in STAGES:
        cost = prediction.stages[stage].cost
        bound = roofline.bound(prediction.stages[stage], hardware, prediction.policy.dtype)
        rows.append(
            {
                "stage": stage.value,
                "inside_prefill": stage in INSIDE_PREFILL,
                "flops": cost.flops,
                "other_flops": cost.other_flops,
                "bytes_read": cost.bytes_read,
                "bytes_written": cost.bytes_written,
                "weight_bytes": cost.weight_bytes,
                "activation_bytes": cost.activation_bytes,
                "kv_bytes": cost.kv_bytes,
                "compulsory_bytes": bound.bytes,
                "intensity_flop_per_byte": bound.intensity,
                "compute_s": bound.compute_ms / 1e3,
                "memory_s": bound.memory_ms / 1e3,
                "bound_s": bound.time_ms / 1e3,
                "bound_by": bound.limit,
                "parameters": cost.parameters,
            }
        )
    return pd.DataFrame(rows)


def shown_costs(costs: pd.DataFrame, parameters: int) -> pd.DataFrame:
    """`stage_costs` for people, with prefill as a clock sees it and everything in one row.

    `parameters` are the whole model's: stages share some.
    """
    rows = [_cost_row(stage_name(Stage(row["stage"])), row) for row in costs.to_dict("records")]
    vision, language = costs["inside_prefill"], costs["stage"] == Stage.PREFILL
    together = costs[vision | language].sum(numeric_only=True).to_dict() | {"bound_by": "sum"}
    rows.insert(len(INSIDE_PREFILL) + 1, _cost_row("prefill with vision", together))
    whole = costs.sum(numeric_only=True).to_dict() | {"bound_by": "sum", "parameters": parameters}
    rows.append(_cost_row("everything", whole))
    return pd.DataFrame(rows)


def _cost_row(name: str, row: Mapping[str, float]) -> dict[str, str]:
    moved = row["compulsory_bytes"]
    return {
        "stage": name,
        "FLOPs": amount(row["flops"], "FLOP"),
        "least traffic": amount(moved, "B"),
        "FLOP/B": significant(row["flops"] / moved) if moved else "0",
        "least time": amount(row["bound_s"], "s"),
        "by": str(row["bound_by"]),
        "weight traffic": amount(row["weight_bytes"], "B"),
        "KV traffic": amount(row["kv_bytes"], "B"),
        "bytes read": amount(row["bytes_read"], "B"),
        "bytes written": amount(row["bytes_written"], "B"),
        "elementwise": amount(row["other_flops"], "FLOP"),
        "parameters": amount(row["parameters"], ""),
    }


ABOUT = {
    "FLOPs": "Matrix products and convolutions, a multiply-add as two: what torch's counter counts.",
    "least traffic": "Bytes that have to move between memory and the chip however operators are fused.",
    "FLOP/B": "FLOPs for each byte of the least traffic: the place on the roofline.",
    "least time": "The longer of computing at peak and moving the least traffic at full bandwidth.",
    "by": "What the least time is bound by.",
    "weight traffic": "Bytes of weights, each time that they are read: decode reads them every token.",
    "KV traffic": "Bytes of the KV cache that are read and written over all tokens; its size is in the line "
    "above the tabs.",
    "bytes read": "Read by all operators, were none of them fused.",
    "bytes written": "Written by all operators, were none of them fused.",
    "elementwise": "Norms, softmax, activations, rotary: arithmetic that torch's counter leaves out.",
    "parameters": "Weights that the stage uses; stages share some.",
}
"""What each column counts, for the pointer."""


def stage_name(stage: Stage) -> str:
    """As in the legend: vision lies inside prefill, whose row is the language model."""
    if stage is Stage.PREFILL:
        return "prefill › language model"
    return f"prefill › {stage.value}" if stage in INSIDE_PREFILL else stage.value


def spans(panel: str, row: str, amounts: Mapping[Stage, float]) -> pd.DataFrame:
    """Where the bars of one row lie: vision at the head of prefill, decode after it.

    `amounts` has the language model alone under prefill; its bar is drawn with the vision in it.
    """
    rows, inner = [], 0.0
    for stage in INSIDE_PREFILL:
        if stage in amounts:
            rows.append(_span(panel, row, stage, inner, amounts[stage]))
            inner += amounts[stage]
    whole = inner + amounts.get(Stage.PREFILL, 0.0)
    rows.append(_span(panel, row, Stage.PREFILL, 0.0, whole))
    if Stage.DECODE in amounts:
        rows.append(_span(panel, row, Stage.DECODE, whole, amounts[Stage.DECODE]))
    return pd.DataFrame(rows)


def _span(panel: str, row: str, stage: Stage, start: float, size: float) -> dict[str, object]:
    return {
        "panel": panel, "row": row, "stage": stage.value, "start": float(start), "amount": float(size),
        "inside": stage in INSIDE_PREFILL,
    }  # fmt: skip


COST_UNITS = {"FLOPs": "FLOP", "bytes": "B", "least time": "s"}
"""Panels of `cost_spans` and their units. Bytes are those that must move however operators are fused."""


def cost_spans(costs: pd.DataFrame) -> pd.DataFrame:
    """The bars of `stage_costs`: what is computed, what has to move, how long both take at least."""
    columns = dict(zip(COST_UNITS, ("flops", "compulsory_bytes", "bound_s"), strict=True))
    names = [Stage(name) for name in costs["stage"]]
    return pd.concat(
        [
            spans(panel, panel, dict(zip(names, costs[column], strict=True)))
            for panel, column in columns.items()
        ],
        ignore_index=True,
    )


def operators(stage: StageCost) -> pd.DataFrame:
    """Every operator of a stage over all layers, views and runs, the largest first; shares are of 1."""
    rows = [
        {
            "module": operator.module,
            "operator": operator.operator,
            "calls": operator.calls,
            "flops": operator.cost.flops,
            "other_flops": operator.cost.other_flops,
            "bytes_read": operator.cost.bytes_read,
            "bytes_written": operator.cost.bytes_written,
            "parameters": operator.cost.parameters,
        }
        for operator in stage.operators
    ]
    names = ["module", "operator"]
    columns = [*names, "calls", "flops", "other_flops", "bytes_read", "bytes_written", "parameters"]
    frame = pd.DataFrame(rows, columns=columns).groupby(names, sort=False, as_index=False).sum()
    moved = frame["bytes_read"] + frame["bytes_written"]
    frame["share_of_flops"] = frame["flops"] / max(frame["flops"].sum(), 1)
    frame["share_of_bytes"] = moved / max(moved.sum(), 1)
    return frame.sort_values(["flops", "bytes_read"], ascending=False, ignore_index=True)


def shown_operators(frame: pd.DataFrame) -> pd.DataFrame:
    """`operators` for people; shares in percent, for bars."""
    return pd.DataFrame(
        {
            "module": frame["module"],
            "operator": frame["operator"],
            "calls": frame["calls"],
            "FLOPs": [amount(value, "FLOP") for value in frame["flops"]],
            "of FLOPs": 100 * frame["share_of_flops"],
            "other": [amount(value, "FLOP") for value in frame["other_flops"]],
            "read": [amount(value, "B") for value in frame["bytes_read"]],
            "written": [amount(value, "B") for value in frame["bytes_written"]],
            "of bytes": 100 * frame["share_of_bytes"],
            "parameters": [amount(value, "") for value in frame["parameters"]],
        }
    )

"""A prediction as a table for people and as JSON for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from analytic_model import roofline
from analytic_model.hardware import Hardware
from analytic_model.ops import Cost
from analytic_model.predict import Prediction, StageCost, decode_step, kv_cache_bytes
from analytic_model.requirements import Need, Requirements
from analytic_model.roofline import Bound
from analytic_model.workload import Workload
from dsocr_core.models.config import ModelConfig
from dsocr_core.stages import TOP_LEVEL, Stage
from dsocr_core.words import amount, percent


def as_json(config: ModelConfig, prediction: Prediction, hardware: Hardware) -> dict[str, Any]:
    """Everything that the table says and each stage's operators; plain numbers, bytes, ms."""
    workload, policy = prediction.workload, prediction.policy
    step = decode_step(config, workload.sequence_length, policy, workload.batch)
    cache = kv_cache_bytes(config.decoder, workload.cached_length, policy.dtype, workload.batch)
    return {
        "workload": {
            **asdict(workload),
            "num_views": workload.num_views,
            "tokens_per_view": workload.tokens_per_view,
            "vision_tokens": workload.vision_tokens,
            "image_tokens": workload.image_tokens,
            "sequence_length": workload.sequence_length,
            "decode_steps": workload.decode_steps,
            "final_length": workload.final_length,
        },
        "policy": asdict(policy),
        "hardware": asdict(hardware),
        "stages": {
            str(name): _stage_json(stage, hardware, prediction) for name, stage in prediction.stages.items()
        },
        "inside_prefill": [str(stage) for stage in prediction.stages if stage not in TOP_LEVEL],
        "prefill_with_vision": {
            **_cost_json(prediction.with_nested(Stage.PREFILL).cost),
            "bound_ms": roofline.prefill_ms(prediction, hardware),
        },
        "decode_step": {
            "context": workload.sequence_length,
            **_stage_json(step, hardware, prediction),
        },
        "parameters": prediction.parameters,
        "kv_cache_bytes": cache,
        "not_counted": list(prediction.not_counted),
    }


def _stage_json(stage: StageCost, hardware: Hardware, prediction: Prediction) -> dict[str, Any]:
    limits = roofline.bound(stage, hardware, prediction.policy.dtype)
    return {
        **_cost_json(stage.cost),
        "compulsory_bytes": stage.compulsory_bytes,
        "bound_ms": limits.time_ms,
        "compute_ms": limits.compute_ms,
        "memory_ms": limits.memory_ms,
        "limit": limits.limit,
        "operators": [
            {
                "module": operator.module,
                "operator": operator.operator,
                "calls": operator.calls,
                **_cost_json(operator.cost),
            }
            for operator in stage.operators
        ],
    }


def _cost_json(cost: Cost) -> dict[str, int]:
    return {**cost._asdict(), "activation_bytes": cost.activation_bytes}


def as_text(config: ModelConfig, prediction: Prediction, hardware: Hardware) -> str:
    """The table, at most 100 columns wide, with what is not counted below it."""
    workload, policy = prediction.workload, prediction.policy
    columns, rows = workload.grid
    cache = kv_cache_bytes(config.decoder, workload.cached_length, policy.dtype, workload.batch)
    views = ", ".join(f"{count} x {side} px" for count, side in workload.view_groups)
    lines = [
        f"views      {views} (grid {columns} x {rows}), {workload.vision_tokens} vision tokens",
        f"sequence   {workload.image_tokens} image + {workload.prompt_tokens} prompt = "
        f"{workload.sequence_length} tokens, then {workload.decode_tokens} new; batch {workload.batch}",
        f"model      {amount(prediction.parameters['total'])} parameters; {policy.dtype}, "
        f"{policy.attention}; KV cache {amount(cache, 'B')} at the end",
        f"hardware   {hardware.name}: {amount(hardware.peak_flops(policy.dtype), 'FLOP/s')}, "
        f"{amount(hardware.bandwidth, 'B/s')}",
        "",
        _HEADER,
        "-" * len(_HEADER),
    ]
    for name, stage in prediction.stages.items():
        limits = roofline.bound(stage, hardware, policy.dtype)
        label = f"  {name}" if name not in TOP_LEVEL else str(name)
        lines.append(_row(label, stage.cost, limits))
        if name == Stage.PREFILL:
            whole = prediction.with_nested(Stage.PREFILL).cost
            lines.append(_row("  with vision", whole, roofline.prefill_ms(prediction, hardware)))
    step = decode_step(config, workload.sequence_length, policy, workload.batch)
    lines += [
        _row("one token", step.cost, roofline.bound(step, hardware, policy.dtype)),
        "",
        "Indented stages run inside prefill. One token: the first after prefill. FLOPs are those of matrix",
        "products and convolutions (a multiply-add is 2); read and written sum over operators; the bound is",
        "the larger of FLOPs at peak and of the bytes that have to move, at full bandwidth.",
        "Not counted:",
        *(f"- {note}" for note in prediction.not_counted),
    ]
    return "\n".join(lines)


_HEADER = (
    f"{'stage':<15}{'FLOPs':>9}{'other':>9}{'read':>9}{'written':>9}{'weights':>9}{'KV':>9}"
    f"{'params':>9}{'bound':>11}  by"
)


def _row(label: str, cost: Cost, limits: Bound | float) -> str:
    """`limits` is a time in ms where several stages' bounds are summed."""
    time_ms = limits if isinstance(limits, float) else limits.time_ms
    limit = "sum" if isinstance(limits, float) else limits.limit
    return (
        f"{label:<15}{amount(cost.flops):>9}{amount(cost.other_flops):>9}{amount(cost.bytes_read, 'B'):>9}"
        f"{amount(cost.bytes_written, 'B'):>9}{amount(cost.weight_bytes, 'B'):>9}"
        f"{amount(cost.kv_bytes, 'B'):>9}{amount(cost.parameters):>9}"
        f"{amount(time_ms / 1e3, 's'):>11}  {limit}"
    )


def as_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of one form with their names on top, without a line's end after the last."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def requirements_json(workload: Workload, needed: Requirements) -> dict[str, Any]:
    """What the table says; rates a second, shares of 1, times in ms."""
    return {
        "target": needed.target,
        "seconds": needed.seconds,
        "workload": {**asdict(workload), "image_tokens": workload.image_tokens},
        "stages": {str(stage): _need_json(need) for stage, need in needed.stages.items()},
        "total": _need_json(needed.total),
        "devices": [
            {
                "hardware": reach.key,
                "least_ms": reach.least_ms,
                "share": reach.share,
                "peak_share": reach.peak_share,
                "bandwidth_share": reach.bandwidth_share,
                "reaches": reach.possible,
            }
            for reach in needed.devices
        ],
    }


def _need_json(need: Need) -> dict[str, float]:
    return {
        "flops": need.flops,
        "bytes": need.bytes,
        "flops_per_s": need.flops_per_s,
        "bytes_per_s": need.bytes_per_s,
    }


def requirements_sentence(workload: Workload, needed: Requirements) -> str:
    """The answer in a line: "50.0 ms to the first token of 2 x 3 tiles take 85.1 TFLOP/s ..."."""
    columns, rows = workload.grid
    size = f"{columns} x {rows} tiles" if workload.tile_count else f"one view of {workload.views[-1]} px"
    several = f", {workload.batch} pages at once" if workload.batch > 1 else ""
    time = amount(needed.seconds, "s")
    goal = {
        "ttft": f"{time} to the first token",
        "tpot": f"{time} a token",
        "pages": f"{amount(workload.batch / needed.seconds)} pages a second",
    }[needed.target]
    total = needed.total
    rates = f"{amount(total.flops_per_s, 'FLOP/s')} and {amount(total.bytes_per_s, 'B/s')}"
    words = f"{goal} at {size}{several}: {rates}"
    able = needed.first_possible
    if able is None:
        return f"{words}; no device of the list reaches it"
    return f"{words}; {able.hardware.name} reaches it at {percent(100 * able.share)} of what it can do"


def requirements_text(workload: Workload, needed: Requirements) -> str:
    """The sentence, the rates of each stage, the devices."""
    lines = [requirements_sentence(workload, needed), "", _NEED_HEADER, "-" * len(_NEED_HEADER)]
    named = [
        (f"  {name}" if name not in TOP_LEVEL else str(name), need) for name, need in needed.stages.items()
    ]
    for label, need in [*named, ("all", needed.total)]:
        lines.append(
            f"{label:<15}{amount(need.flops):>9}{amount(need.bytes, 'B'):>9}"
            f"{amount(need.flops_per_s, 'FLOP/s'):>14}{amount(need.bytes_per_s, 'B/s'):>12}"
        )
    lines += ["", _REACH_HEADER, "-" * len(_REACH_HEADER)]
    for reach in needed.devices:
        lines.append(
            f"{reach.hardware.name:<20}{amount(reach.least_ms / 1e3, 's'):>11}{percent(100 * reach.share):>9}"
            f"{percent(100 * reach.peak_share):>10}{percent(100 * reach.bandwidth_share):>14}"
            f"  {'yes' if reach.possible else 'no'}"
        )
    return "\n".join(
        [
            *lines,
            "",
            "Stages share the target's time, so their rates add up. Of limit: the least time, the sum of the",
            "stages' bounds, over the target; of peak and of bandwidth: the rates needed over the device's.",
        ]
    )


_NEED_HEADER = f"{'stage':<15}{'FLOPs':>9}{'bytes':>9}{'needs':>14}{'and':>12}"
_REACH_HEADER = f"{'device':<20}{'least':>11}{'of limit':>9}{'of peak':>10}{'of bandwidth':>14}  reaches it"

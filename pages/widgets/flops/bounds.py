"""Predictions against time: recorded stages, bounds, and where compute and bandwidth cross. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log, nan
from typing import Protocol

import pandas as pd

from analytic_model import roofline
from analytic_model.hardware import Hardware
from analytic_model.policy import Policy
from analytic_model.predict import STAGES, Prediction, StageCost, decode_step, predict
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.flops.address import CUSTOM
from pages.widgets.flops.tables import spans, stage_name
from pages.widgets.shared.amounts import amount, percent_of
from pages.widgets.shared.formats import significant

NO_BOUND = "no bound known"


class Timed(Protocol):
    """A page that a clock watched."""

    def milliseconds(self, stage: Stage) -> float | None: ...


def recorded_workload(size: tuple[int, int], preset: str, positions: int, new_tokens: int) -> Workload:
    """The shape of what a backend did on a page of `size` pixels, from what it recorded.

    `positions` are the whole prompt's, the image's span included. Raises DsocrError for a foreign record.
    """
    work = Workload.from_image(*size, preset, decode_tokens=new_tokens)
    return replace(work, prompt_tokens=positions - work.image_tokens)


def times(prediction: Prediction, hardware: Hardware, result: Timed) -> pd.DataFrame:
    """Each stage's recorded time beside its bound, prefill both alone and as a clock sees it.

    The language model's own time is what vision leaves of prefill. Columns stage, with_vision, measured_s,
    bound_s, bound_share, flops, bytes, intensity, flops_per_s, mfu, bandwidth_share; NaN where no time was
    recorded.
    """
    dtype = prediction.policy.dtype
    rows = []
    for stage, with_vision in (
        *((stage, False) for stage in STAGES[:-1]),
        (Stage.PREFILL, True),
        (Stage.DECODE, False),
    ):
        nested = with_vision and stage is Stage.PREFILL
        work = roofline.bound(
            prediction.with_nested(stage) if nested else prediction.stages[stage], hardware, dtype
        )
        bound_ms = roofline.prefill_ms(prediction, hardware) if nested else work.time_ms
        measured = result.milliseconds(stage)
        if stage is Stage.PREFILL and not nested and measured is not None:
            measured -= sum(result.milliseconds(part) or 0.0 for part in INSIDE_PREFILL)
        row: dict[str, object] = {
            "stage": stage.value, "with_vision": nested, "bound_s": bound_ms / 1e3, "flops": work.flops,
            "bytes": work.bytes, "intensity": work.intensity,
        }  # fmt: skip
        if measured is not None and measured > 0:
            achieved = roofline.achieved(work, measured, hardware, dtype)
            row |= {
                "measured_s": measured / 1e3, "bound_share": bound_ms / measured, "mfu": achieved.mfu,
                "flops_per_s": achieved.flops_per_s, "bandwidth_share": achieved.bandwidth_share,
            }  # fmt: skip
        rows.append(row)
    columns = ["stage", "with_vision", "measured_s", "bound_s", "bound_share", "flops", "bytes", "intensity",
               "flops_per_s", "mfu", "bandwidth_share"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def of_device(hardware: str, device: str) -> bool:
    """Whether hardware's figures, by their key, say anything of times that were taken on a device."""
    return hardware == CUSTOM or hardware.removesuffix("-measured").replace("-", " ") in device.lower()


def no_bound_words(device: str, hardware: str) -> str:
    """Why there is no bound: the peaks of one device say nothing of another's times."""
    return (
        f"No bound is known for {device}: the peaks shown are those of {hardware}. Give what bench measured "
        "on that machine under Hardware, your own figures."
    )


def without_bound(frame: pd.DataFrame) -> pd.DataFrame:
    """`times` of a device whose bound is not known."""
    return frame.assign(bound_s=nan, bound_share=nan, mfu=nan, bandwidth_share=nan)


def shown_times(frame: pd.DataFrame) -> pd.DataFrame:
    """`times` for people."""
    return pd.DataFrame(
        {
            "stage": [
                "prefill with vision" if nested else stage_name(Stage(name))
                for name, nested in zip(frame["stage"], frame["with_vision"], strict=True)
            ],
            "recorded": [amount(value, "s") for value in frame["measured_s"]],
            "least time": [amount(value, "s") if value == value else NO_BOUND for value in frame["bound_s"]],
            "above the least": [_inverse(value) for value in frame["bound_share"]],
            "FLOPs": [amount(value, "FLOP") for value in frame["flops"]],
            "speed": [amount(value, "FLOP/s") for value in frame["flops_per_s"]],
            "of peak": [percent_of(100 * value) for value in frame["mfu"]],
            "of bandwidth": [percent_of(100 * value) for value in frame["bandwidth_share"]],
        }
    )


def _inverse(share: float) -> str:
    return f"{significant(1 / share)}x" if share and share == share else "–"


def time_spans(frame: pd.DataFrame, recorded: str, bound: str) -> pd.DataFrame:
    """Bars of recorded times over the bounds; `recorded` and `bound` name the two rows."""
    alone = frame[~frame["with_vision"]]

    def seconds(column: str) -> dict[Stage, float]:
        return {
            Stage(name): float(value)
            for name, value in zip(alone["stage"], alone[column], strict=True)
            if value == value
        }

    return pd.concat(
        [spans("time", recorded, seconds("measured_s")), spans("time", bound, seconds("bound_s"))],
        ignore_index=True,
    )


def roofline_points(costs: pd.DataFrame, recorded: pd.DataFrame | None = None) -> pd.DataFrame:
    """Where the stages stand: on the roof by their bound and, where `times` are given, below it as recorded.

    Columns stage, kind, intensity in FLOP/B, flops_per_s. Prefill is the language model alone.
    """
    costly = costs[costs["bound_s"] > 0]
    points = [
        pd.DataFrame(
            {
                "stage": costly["stage"],
                "kind": "bound",
                "intensity": costly["intensity_flop_per_byte"],
                "flops_per_s": costly["flops"] / costly["bound_s"],
            }
        )
    ]
    if recorded is not None:
        timed = recorded[~recorded["with_vision"] & recorded["flops_per_s"].notna()]
        points.append(timed[["stage", "intensity", "flops_per_s"]].assign(kind="measured"))
    return pd.concat(points, ignore_index=True)


# --- where compute and bandwidth cross ------------------------------------------------------------

BATCH_SWEEP = tuple(2**power for power in range(13))
POSITION_SWEEP = tuple(2**power for power in range(7, 15))
SWEEP_PRESET = "tiny"
"""The shortest image span: the rest of the positions are text, which costs the language model the same."""
SWEEP_IMAGE_TOKENS = Workload.from_image(1, 1, SWEEP_PRESET).image_tokens


def decode_sweep(config: ModelConfig, workload: Workload, policy: Policy, hardware: Hardware) -> pd.DataFrame:
    """The first token after prefill of each of `size` pages: size, compute_s, memory_s, flops, bytes."""
    context = workload.sequence_length
    return _sweep(BATCH_SWEEP, lambda size: decode_step(config, context, policy, size), hardware, policy)


def prefill_sweep(config: ModelConfig, policy: Policy, hardware: Hardware) -> pd.DataFrame:
    """The language model's prefill of `size` positions: size, compute_s, memory_s, flops, bytes."""

    def prefill(size: int) -> StageCost:
        workload = Workload.from_image(1, 1, SWEEP_PRESET, size - SWEEP_IMAGE_TOKENS)
        return predict(config, workload, policy).stages[Stage.PREFILL]

    return _sweep(POSITION_SWEEP, prefill, hardware, policy)


def _sweep(
    sizes: Sequence[int], cost: Callable[[int], StageCost], hardware: Hardware, policy: Policy
) -> pd.DataFrame:
    bounds = [roofline.bound(cost(size), hardware, policy.dtype) for size in sizes]
    return pd.DataFrame(
        {
            "size": sizes,
            "compute_s": [bound.compute_ms / 1e3 for bound in bounds],
            "memory_s": [bound.memory_ms / 1e3 for bound in bounds],
            "flops": [bound.flops for bound in bounds],
            "bytes": [bound.bytes for bound in bounds],
        }
    )


def cross_at(sweep: pd.DataFrame) -> tuple[float, float] | None:
    """The size, and the time there, at which computing begins to take as long as moving bytes.

    None when it never does, or does from the first size on. Between the sizes of the sweep both times are
    taken to be powers of the size.
    """
    above = (sweep["compute_s"] >= sweep["memory_s"]).tolist()
    if True not in above or above[0]:
        return None
    before, after = sweep.iloc[above.index(True) - 1], sweep.iloc[above.index(True)]
    missing = log(before["memory_s"] / before["compute_s"])
    share = missing / (missing + log(after["compute_s"] / after["memory_s"]))
    return tuple(
        exp(log(before[name]) * (1 - share) + log(after[name]) * share) for name in ("size", "memory_s")
    )  # type: ignore[return-value]

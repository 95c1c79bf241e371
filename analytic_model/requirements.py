"""Rates that a time to first token, or per output token, requires, stage by stage.

The stages' rates add up to the target's, as they share its time. Bytes are the compulsory ones.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analytic_model.frames import EVERYTHING
from analytic_model.hardware import HARDWARE
from analytic_model.policy import Policy
from analytic_model.predict import decode_step, predict
from analytic_model.roofline import bound
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import amount, percent
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.stages import Stage

Target = Literal["ttft", "tpot"]


@dataclass(frozen=True)
class Requirements:
    target: Target
    seconds: float
    """Time of one first token, or of one output token of every page."""
    needs: pd.DataFrame
    """A row a stage, EVERYTHING last: stage, flops, bytes, flops_per_s, bytes_per_s."""
    devices: pd.DataFrame
    """A row a device whose peak in this dtype is known, fastest first: hardware, least_s (no code takes
    less), share (that of the target's time), peak_share, bandwidth_share, reaches."""


def requirements(
    config: ModelConfig, workload: Workload, target: Target, value: float, policy: Policy | None = None
) -> Requirements:
    """Work out what a time of `value` milliseconds requires. Raises DsocrError.

    With a batch it is the time of all its pages together.
    """
    if not 0 < value < float("inf"):
        raise DsocrError(f"{target} is {value!r}; expected a positive number")
    policy, seconds = policy or Policy(), value / 1e3
    if target == "tpot":
        step = decode_step(config, workload.sequence_length, policy, workload.batch)
        stages = {Stage.DECODE: step}
    else:
        stages = dict(predict(config, workload, policy).stages)
        del stages[Stage.DECODE]
    work = [(stage.value, cost.cost.flops, cost.compulsory_bytes) for stage, cost in stages.items()]
    needs = pd.DataFrame(work, columns=["stage", "flops", "bytes"])
    needs.loc[len(needs)] = [EVERYTHING, needs["flops"].sum(), needs["bytes"].sum()]
    needs = needs.assign(flops_per_s=needs["flops"] / seconds, bytes_per_s=needs["bytes"] / seconds)
    total = needs.iloc[-1]
    rows = []
    for device in HARDWARE.values():
        with suppress(DsocrError):  # devices without a known peak
            peak = device.peak_flops(policy.dtype)
            # Stages run one after another.
            least_s = sum(bound(cost, device, policy.dtype).time_ms for cost in stages.values()) / 1e3
            shares = least_s / seconds, total["flops_per_s"] / peak, total["bytes_per_s"] / device.bandwidth
            rows.append((device.name, least_s, *shares, least_s <= seconds))
    columns = ["hardware", "least_s", "share", "peak_share", "bandwidth_share", "reaches"]
    devices = pd.DataFrame(rows, columns=columns).sort_values("least_s", kind="stable", ignore_index=True)
    return Requirements(target, seconds, needs, devices)


def sentence(workload: Workload, needed: Requirements) -> str:
    """Answer in one line: "50.0 ms to the first token of 2 x 3 tiles take 85.1 TFLOP/s ..."."""
    columns, rows = workload.grid
    size = f"{columns} x {rows} tiles" if workload.tile_count else f"one view of {workload.views[-1]} px"
    size += f", {workload.batch} pages at once" if workload.batch > 1 else ""
    goal, total = "to the first token" if needed.target == "ttft" else "a token", needed.needs.iloc[-1]
    rates = f"{amount(total['flops_per_s'], 'FLOP/s')} and {amount(total['bytes_per_s'], 'B/s')}"
    words = f"{amount(needed.seconds, 's')} {goal} at {size}: {rates}"
    able = needed.devices[needed.devices["reaches"]]
    if able.empty:
        return f"{words}; no device of the list reaches it"
    least = able.iloc[-1]
    return f"{words}; {least['hardware']} reaches it at {percent(100 * least['share'])} of its limit"

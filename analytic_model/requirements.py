"""Requirements: the rates that a target asks for, stage by stage, and the devices that can reach it.

A target is a time to first token or a time per output token. The work behind it is the prediction's. Rates
of stages add up to the target's, because stages share its time. Bytes are the compulsory ones: weights, KV
cache, each stage's inputs and outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analytic_model import roofline
from analytic_model.hardware import HARDWARE, Hardware, HardwareError
from analytic_model.policy import Policy
from analytic_model.predict import StageCost, decode_step, predict
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import amount, percent
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.stages import Stage

Target = Literal["ttft", "tpot"]


class TargetError(DsocrError, ValueError):
    """A target that is no positive number."""


@dataclass(frozen=True)
class Need:
    """The rates that a stage, or all of them, has to reach."""

    flops: int
    """In one time of the target."""
    bytes: int
    seconds: float
    """The target's time: what all stages together may take."""

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds


@dataclass(frozen=True)
class Reach:
    """Limits of a device beside a target. Shares are of 1."""

    key: str
    hardware: Hardware
    least_ms: float
    """The sum of the stages' bounds: no code takes less."""
    share: float
    """Share of what the device can do: the least time over the target's. Above 1 it cannot reach the
    target.
    """
    peak_share: float
    """The FLOP/s that are needed over the device's peak."""
    bandwidth_share: float

    @property
    def possible(self) -> bool:
        return self.share <= 1


@dataclass(frozen=True)
class Requirements:
    target: Target
    seconds: float
    """Time of one first token, or of one output token of every page."""
    stages: dict[Stage, Need]
    """Prefill is the language model alone: vision stands beside it."""
    total: Need
    devices: tuple[Reach, ...]
    """Fastest first; only those whose peak in this dtype is known."""

    @property
    def first_possible(self) -> Reach | None:
        """The device that reaches the target with the least to spare."""
        able = [reach for reach in self.devices if reach.possible]
        return max(able, key=lambda reach: reach.share) if able else None


def work_of(
    config: ModelConfig, workload: Workload, target: Target, policy: Policy
) -> dict[Stage, StageCost]:
    """The stages that run within the target's time, and their costs."""
    if target == "tpot":
        step = decode_step(config, workload.sequence_length, policy, workload.batch)
        return {Stage.DECODE: step}
    stages = predict(config, workload, policy).stages
    return {stage: cost for stage, cost in stages.items() if stage != Stage.DECODE}


def requirements(
    config: ModelConfig,
    workload: Workload,
    target: Target,
    value: float,
    policy: Policy | None = None,
    hardware: dict[str, Hardware] | None = None,
) -> Requirements:
    """Work out what a time of `value` milliseconds asks for. Raises TargetError.

    With a batch, a time is that of all its pages, side by side.
    """
    if not 0 < value < float("inf"):
        raise TargetError(f"{target} is {value!r}; expected a positive number")
    policy = policy or Policy()
    seconds = value / 1e3
    stages = work_of(config, workload, target, policy)
    needs = {stage: Need(cost.cost.flops, cost.compulsory_bytes, seconds) for stage, cost in stages.items()}
    total = Need(
        sum(need.flops for need in needs.values()), sum(need.bytes for need in needs.values()), seconds
    )
    reaches = []
    for key, device in (HARDWARE if hardware is None else hardware).items():
        try:
            reaches.append(_reach(key, device, stages, total, policy))
        except HardwareError:
            continue  # its peak in this dtype is not known
    reaches.sort(key=lambda reach: reach.least_ms)
    return Requirements(target, seconds, needs, total, tuple(reaches))


def _reach(key: str, device: Hardware, stages: dict[Stage, StageCost], total: Need, policy: Policy) -> Reach:
    least_ms = roofline.one_after_another(
        roofline.bound(cost, device, policy.dtype) for cost in stages.values()
    )
    return Reach(
        key,
        device,
        least_ms,
        least_ms / (1e3 * total.seconds),
        total.flops_per_s / device.peak_flops(policy.dtype),
        total.bytes_per_s / device.bandwidth,
    )


def sentence(workload: Workload, needed: Requirements) -> str:
    """Write the answer in a line: "50.0 ms to the first token of 2 x 3 tiles take 85.1 TFLOP/s ..."."""
    columns, rows = workload.grid
    size = f"{columns} x {rows} tiles" if workload.tile_count else f"one view of {workload.views[-1]} px"
    several = f", {workload.batch} pages at once" if workload.batch > 1 else ""
    time = amount(needed.seconds, "s")
    goal = {"ttft": f"{time} to the first token", "tpot": f"{time} a token"}[needed.target]
    total = needed.total
    rates = f"{amount(total.flops_per_s, 'FLOP/s')} and {amount(total.bytes_per_s, 'B/s')}"
    words = f"{goal} at {size}{several}: {rates}"
    able = needed.first_possible
    if able is None:
        return f"{words}; no device of the list reaches it"
    return f"{words}; {able.hardware.name} reaches it at {percent(100 * able.share)} of its limit"

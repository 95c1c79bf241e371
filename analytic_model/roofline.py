"""From a cost to time: the bound of a stage on a device.

A stage takes at least as long as its matrix FLOPs at the device's peak, and at least as long as its
bytes at the device's bandwidth. Two readings of its bytes:

- `compulsory`: weights, KV cache, and the stage's own inputs and outputs. However the operators are
  fused, these have to move, so the time is a bound.
- `operators`: the inputs and outputs of every operator. What unfused kernels move; fused ones beat it.

FLOPs are the prediction's own: for a bound that no code can beat, predict under `least_work(policy)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from analytic_model.hardware import Hardware
from analytic_model.policy import Dtype, Policy
from analytic_model.predict import Prediction, StageCost
from dsocr_core.models.stages import Stage

Traffic = Literal["compulsory", "operators"]
Limit = Literal["compute", "memory", "nothing"]


@dataclass(frozen=True)
class Bound:
    """The least time of some work on a device, and what sets it."""

    flops: int
    bytes: int
    compute_ms: float
    memory_ms: float

    @property
    def time_ms(self) -> float:
        return max(self.compute_ms, self.memory_ms)

    @property
    def limit(self) -> Limit:
        if not self.time_ms:
            return "nothing"
        return "compute" if self.compute_ms >= self.memory_ms else "memory"

    @property
    def intensity(self) -> float:
        """FLOPs a byte; 0 for no work."""
        return self.flops / self.bytes if self.bytes else 0.0


def bound(stage: StageCost, hardware: Hardware, dtype: Dtype, traffic: Traffic = "compulsory") -> Bound:
    """The bound of one stage, all its calls together."""
    cost = stage.cost
    moved = stage.compulsory_bytes if traffic == "compulsory" else cost.bytes_moved
    return Bound(
        cost.flops,
        moved,
        compute_ms=1e3 * cost.flops / hardware.peak_flops(dtype),
        memory_ms=1e3 * moved / hardware.bandwidth,
    )


def one_after_another(bounds: Iterable[Bound]) -> float:
    """The least time of stages that wait for each other: the sum of their bounds in ms."""
    return sum(bound.time_ms for bound in bounds)


def prefill_ms(prediction: Prediction, hardware: Hardware, traffic: Traffic = "compulsory") -> float:
    """The least time of prefill as a clock sees it, with the vision stages that run inside it."""
    return one_after_another(
        bound(cost, hardware, prediction.policy.dtype, traffic)
        for stage, cost in prediction.stages.items()
        if stage != Stage.DECODE
    )


def least_s(prediction: Prediction, hardware: Hardware | None) -> float | None:
    """The least seconds a page, of pages side by side their share; None where the device is not known."""
    if hardware is None:
        return None
    dtype = prediction.policy.dtype
    every = one_after_another(bound(cost, hardware, dtype) for cost in prediction.stages.values())
    return every / 1e3 / prediction.workload.batch


def least_work(policy: Policy) -> Policy:
    """The same model and dtype, counting only what the result needs: for bounds that hold for any code."""
    return replace(
        policy,
        ignore_torch_unsupported_flops=False,
        causal="halved",
        lm_head="last",
        attention="sdpa",
        vision_window_padding=False,
    )

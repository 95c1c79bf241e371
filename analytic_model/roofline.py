"""Lower bound of a stage's time on a device, from its cost.

A stage takes at least the time of its matrix FLOPs at the device's peak, and of its compulsory bytes at the
device's bandwidth: weights, KV cache, and the stage's own inputs and outputs. These must be moved however the
operators are fused.

FLOPs are the prediction's. For a bound that no code can beat, predict under `least_work(policy)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from analytic_model.hardware import Hardware
from analytic_model.policy import Dtype, Policy
from analytic_model.stage_cost import StageCost

Limit = Literal["compute", "memory", "nothing"]


@dataclass(frozen=True)
class Bound:
    """Lower bound of the time of some work on a device, and what limits it."""

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
        """FLOPs per byte; 0 without work."""
        return self.flops / self.bytes if self.bytes else 0.0


def bound(stage: StageCost, hardware: Hardware, dtype: Dtype) -> Bound:
    """Bound of one stage over all its calls."""
    flops, moved = stage.cost.flops, stage.compulsory_bytes
    return Bound(flops, moved, 1e3 * flops / hardware.peak_flops(dtype), 1e3 * moved / hardware.bandwidth)


def least_work(policy: Policy) -> Policy:
    """Policy that counts only what the result requires, so that its bounds hold for any code."""
    # The result needs the greedy token, at which the head in 8 bits is enough: so the fast engine reads it.
    return replace(
        policy, ignore_torch_unsupported_flops=False, causal="halved", lm_head="last", head_in_8_bits=True,
        attention="sdpa", vision_window_padding=False,
    )  # fmt: skip

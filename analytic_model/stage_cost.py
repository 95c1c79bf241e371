"""The cost of a stage, operator by operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from analytic_model.ops import Cost, elementwise, linear
from analytic_model.policy import Counter, Policy
from dsocr_core.models.stages import Stage

FUSED_ATTENTION: dict[Counter, str] = {
    "meta": "bmm",
    "cuda": "scaled_dot_product_attention",
    "cpu": "_scaled_dot_product_flash_attention_for_cpu",
}
"""Names of torch's fused attention, by the device of its counter."""


class OperatorCost(NamedTuple):
    """One operator of one module over all its layers and runs."""

    stage: Stage
    module: str
    operator: str
    """torch's aten name, if its counter knows one."""
    calls: int
    """Calls over all layers and runs. A layer's routed experts count as one."""
    cost: Cost


@dataclass(frozen=True)
class StageCost:
    stage: Stage
    operators: tuple[OperatorCost, ...]
    boundary_bytes: int = 0
    """Inputs and outputs of the whole stage, which no fusion inside it saves."""

    @property
    def cost(self) -> Cost:
        return total(operator.cost for operator in self.operators)

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that must be moved with any fusion: weights, KV cache, inputs and outputs."""
        cost = self.cost
        return cost.weight_bytes + cost.kv_bytes + self.boundary_bytes

    def by_operator(self) -> dict[str, Cost]:
        groups: dict[str, Cost] = {}
        for name, cost in ((operator.operator, operator.cost) for operator in self.operators):
            groups[name] = groups[name] + cost if name in groups else cost
        return groups


def total(costs: Iterable[Cost]) -> Cost:
    """Sum of any number of costs."""
    return Cost(*map(sum, zip(*(Cost(), *costs), strict=True)))


class Tally:
    """Collector of a stage's operators. `holds_weights` is false where parameters were counted before."""

    def __init__(self, stage: Stage, holds_weights: bool = True) -> None:
        self.stage, self.holds_weights = stage, holds_weights
        self.operators: list[OperatorCost] = []

    def add(self, module: str, operator: str, cost: Cost, layers: int = 1, runs: int = 1) -> None:
        """Add an operator. `cost` is of one run of one layer. With 0 layers nothing is added."""
        if not layers:
            return
        if layers != 1 or runs != 1 or not self.holds_weights:
            cost = cost.times(layers, runs, holds=self.holds_weights)
        self.operators.append(OperatorCost(self.stage, module, operator, layers * runs, cost))

    def add_swiglu(
        self, module: str, rows: int, width: int, inner: int, size: int, layers: int, runs: int = 1,
        read: int = 1, existing: int = 1,
    ) -> None:  # fmt: skip
        """Add a gated feed-forward, or `existing` experts of one shape, of which `read` get a row."""
        up = linear(rows, width, inner, size, False, read, existing)
        self.add(f"{module}.gate_proj", "mm", up, layers, runs)
        self.add(f"{module}.up_proj", "mm", up, layers, runs)
        self.add(f"{module}.act", "silu_mul", elementwise("silu_mul", rows * inner, size), layers, runs)
        down = linear(rows, inner, width, size, False, read, existing)
        self.add(f"{module}.down_proj", "mm", down, layers, runs)

    def add_summed(self, module: str, operator: str, cost: Cost, layers: int, runs: int) -> None:
        """Add an operator whose `cost` is already summed over one layer's runs."""
        if layers:
            calls = layers * runs
            self.operators.append(OperatorCost(self.stage, module, operator, calls, cost.times(layers)))

    def add_fused_attention(
        self, module: str, cost: Cost, policy: Policy, layers: int, runs: int = 1
    ) -> None:
        """Add torch's fused attention with the name and FLOPs that its counter has for it."""
        if policy.counter == "cpu" and policy.ignore_torch_unsupported_flops:
            cost = cost._replace(flops=0)
        self.add_summed(module, FUSED_ATTENTION[policy.counter], cost, layers, runs)

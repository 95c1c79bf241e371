"""Points of older sweeps under torch's counter: our core computes the work of each, on the meta device."""

from __future__ import annotations

from dataclasses import replace

from analytic_model.earlier_estimates import COUNTED_AS, Estimate, workload_of
from analytic_model.measure import Meter, OnStage
from dsocr_core.stages import Stage

_VISION = (Stage.SAM, Stage.CLIP, Stage.PROJECTOR)


def count(meter: Meter, estimate: Estimate, on_stage: OnStage | None = None, every: bool = False) -> int:
    """FLOPs that torch counts, to hold against `explain(meter.config, estimate).exact`. Raises DsocrError.

    The published code has logits of all positions of the prompt; the head's other positions are counted by
    themselves. Of the decoded tokens the first and the last run: a step costs a constant and so much a
    position. `every` runs them all.
    """
    if estimate.part == "decode":
        return _decoded(meter, estimate, on_stage, every)
    work = replace(workload_of(estimate), decode_tokens=1)
    measured = meter.measure(work, COUNTED_AS.attention, on_stage)
    flops = sum(measured[stage].total() for stage in _VISION)
    if estimate.part == "prefill":
        others = meter.head(work.sequence_length) - meter.head(1)
        flops += measured[Stage.PREFILL].total() + work.batch * others
    return flops


def _decoded(meter: Meter, estimate: Estimate, on_stage: OnStage | None, every: bool) -> int:
    workload_of(estimate)  # refuses a prompt that is none

    def step(number: int) -> int:
        if on_stage is not None:
            on_stage(Stage.DECODE)
        context = estimate.context + number
        return meter.forward(context, 1, estimate.batch, COUNTED_AS.attention).total()

    if every or estimate.steps < 3:
        return sum(map(step, range(estimate.steps)))
    return estimate.steps * (step(0) + step(estimate.steps - 1)) // 2

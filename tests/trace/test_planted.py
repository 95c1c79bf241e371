"""Planted faults: a trace names the block and the kind of cause of every one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsocr_core.engine.base import EagerEngine
from dsocr_core.reading.trace_records import TraceSummary, block_of
from tests.trace.trace_faults import FAULTS, GELUS, Fault


def up_to(block: str) -> tuple[str, ...]:
    """The stages up to that of a block: what comes after its fault differs, and takes time to compare."""
    stages = ("pixels", "sam", "clip", "projector")
    stage = block.partition(".")[0]
    return stages[: stages.index(stage) + 1] if stage in stages else ()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_in_its_block_with_its_cause(
    fault: Fault, engine: EagerEngine, trace_again: Callable[..., TraceSummary]
) -> None:
    with fault.plant(engine.checkpoint.model):
        found = trace_again(up_to(fault.block))
    assert found.first is not None and not found.equal, found.sentence
    assert block_of(found.first.name) == fault.block, found.sentence
    assert found.causes[0].kind == fault.kind, (found.sentence, found.first)


def test_of_both_ways_to_round_the_gelu_one_is_the_engines_and_the_other_is_found(
    engine: EagerEngine, trace_again: Callable[..., TraceSummary]
) -> None:
    found = []
    for fault in GELUS:
        with fault.plant(engine.checkpoint.model):
            found.append(trace_again())
    (other,) = [summary for summary in found if not summary.equal]
    assert other.first is not None and other.first.name == "clip.block0.act"
    assert other.causes[0].kind == "rounding"
    assert other.sentence.startswith("Equal up to CLIP block 0; its act differs in ")


def test_without_a_fault_nothing_differs(trace_again: Callable[..., TraceSummary]) -> None:
    found = trace_again()
    assert found.equal and found.differing == 0 and found.first is None and found.causes == ()
    assert found.compared > 250

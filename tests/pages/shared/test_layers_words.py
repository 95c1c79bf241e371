"""Layers say how far they looked."""

from __future__ import annotations

import pytest

from dsocr_core.reading.trace_records import TensorDifference, TraceSummary
from dsocr_core.trace.causes import sentence_of
from pages.widgets.shared import layers_tab


def summary_of(steps: int, differs_at: int | None) -> TraceSummary:
    rows = tuple(
        TensorDifference(
            "decoder.layer5.out", call, 0, 100, 0.3 * (call == differs_at), 4 * (call == differs_at), 0, None,
            "bfloat16", "bfloat16",
        )
        for call in range(steps + 1)
    )  # fmt: skip
    first = next((row for row in rows if row.differs), None)
    return TraceSummary(
        "p", "eager", "fast", steps, rows, first, (), sentence_of(first, (), len(rows), steps)
    )


@pytest.mark.parametrize("steps", [1, 8, 40])
def test_layers_never_call_a_pair_equal_beyond_the_steps_they_looked_at(steps: int) -> None:
    none = layers_tab._strip(summary_of(steps, None), "")
    assert "dsocr-none" in none and f"NONE IN {steps} STEP" in none
    assert "identical" not in none.lower() and "Equal" not in none and f"{steps} decode step" in none
    first = layers_tab._strip(summary_of(steps, steps), "")
    assert "FIRST DEVIATION" in first and "NONE IN" not in first

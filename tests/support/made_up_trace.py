"""A trace of made-up figures: CLIP's first block differs first, and the error goes on."""

from __future__ import annotations

from dsocr_core.reading.trace_records import Cause, TensorDifference, TraceSummary


def output(name: str, call: int = 0, error: float = 0.0, view: int = 0) -> TensorDifference:
    share, ulp = (0.5, 3) if error else (0.0, 0)
    return TensorDifference(name, call, view, 100, share, ulp, 2 * error, error, "bfloat16", "bfloat16")


def summary(*rows: TensorDifference) -> TraceSummary:
    first = next((row for row in rows if row.differs), None)
    causes = (Cause("rounding", first.name, "rounding order, not weights"),) if first else ()
    return TraceSummary("page.png", "eager", "vendor", 1, rows, first, causes, "A sentence.")


FOUND = summary(
    output("sam.out"), output("sam.out", view=1), output("clip.block0.fc2", error=1e-3),
    output("clip.block0.out", error=2e-3), output("decoder.layer0.out", error=4e-3),
    output("logits", error=1e-2), output("decoder.layer0.out", 1), output("logits", 1, error=5e-3),
)  # fmt: skip

"""Figures of runs that a trend follows: times of stages and pages, rates, shares of what a card can do."""

from __future__ import annotations

from dataclasses import dataclass

from dsocr_core.base.formatting import amount, duration, percent, significant, speed_ratio


@dataclass(frozen=True)
class Measure:
    """One figure: its name and its unit, "ms", "/s" of a rate or "%" of a share of 1."""

    name: str
    column: str
    """Column that has it; empty for a stage, whose statistics the query `trend` has."""
    unit: str

    def write(self, value: float) -> str:
        """Write a value with its unit."""
        if self.unit == "ms":
            return duration(value)
        return percent(100 * value) if self.unit == "%" else amount(value, self.name)

    def change(self, before: float, after: float) -> str:
        """Write how the one became the other: "1.31x faster", of a share "1.31x higher"."""
        if self.unit != "%":
            return speed_ratio(after, before) if self.unit == "ms" else speed_ratio(before, after)
        ratio = max(before, after) / min(before, after)
        return (
            "equal" if ratio < 1.005 else f"{significant(ratio)}x {'higher' if after > before else 'lower'}"
        )


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("tokens/s", "tokens_per_s", "/s"),
        Measure("s/page", "page_ms", "ms"),
        Measure("p95 of a page", "p95_ms", "ms"),
        Measure("pages/s", "pages_per_s", "/s"),
        Measure("MFU", "mfu", "%"),
        Measure("share of floor", "floor_share", "%"),
    )
}
"""Those of whole runs; the last two need what the analytic model says of a page."""
OF_MODEL = ("MFU", "share of floor")


def measure_of(name: str) -> Measure:
    """The measure of that name; any other name is a stage's."""
    return MEASURES.get(name, Measure(name, "", "ms"))

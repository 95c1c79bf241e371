"""Parity of a page as rows of the history's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity import to_row
from dsocr_core.reading.parity_records import Difference, ParityReport

Row = Mapping[str, Any]


def parity_row(page: str, report: ParityReport) -> Row:
    """Make a row of what two results of a page have in common."""
    return to_row(report) | {
        "page": page,
        "boxes_a": report.boxes_a,
        "boxes_b": report.boxes_b,
        "boxes_matched": report.boxes_matched,
        "mean_coordinate_difference_percent": report.mean_coordinate_difference_percent,
    }


def parity_of(page: str, comparison: Comparison) -> Row | None:
    """The parity row of a page; None where it was not to be compared."""
    if comparison.report is not None:
        return parity_row(page, comparison.report)
    return not_compared_row(page, comparison.differences) if comparison.compared else None


def not_compared_row(page: str, differences: Sequence[Difference]) -> Row:
    """The parity row of a page of which a side has no result, and why."""
    return to_row(None, differences) | {"page": page}

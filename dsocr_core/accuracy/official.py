"""The figures of the benchmark's own evaluator, from its `*_metric_result.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsocr_core.accuracy.ground_truth import TruthError
from dsocr_core.accuracy.scores import Total
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes

_LIMIT = 16 * 1024 * 1024
_PLACES = {
    "text_edit": (("text_block", "all", "Edit_dist", "ALL_page_avg"),),
    "order_edit": (("reading_order", "all", "Edit_dist", "ALL_page_avg"),),
    "formula_edit": (("display_formula", "all", "Edit_dist", "ALL_page_avg"),),
    "table_teds": (("table", "page", "TEDS", "ALL"), ("table", "all", "TEDS", "all")),
    "table_structure": (
        ("table", "page", "TEDS_structure_only", "ALL"), ("table", "all", "TEDS_structure_only", "all"),
    ),
}  # fmt: skip
"""Place of a figure: the mean over pages, else that over tables."""


def read_result(file: Path) -> Total:
    """The means of an evaluation; of how many pages it does not say. Raises TruthError."""
    try:
        data = parse_json(read_bytes(file, _LIMIT, follow_links=True), any_number=True)
    except Refused as error:
        raise TruthError(f"{file}: {error}; give a metric_result.json of OmniDocBench") from error
    found = {
        name: next((value for place in places if (value := _at(data, place)) is not None), None)
        for name, places in _PLACES.items()
    }
    if all(value is None for value in found.values()):
        raise TruthError(f"{file}: no figure of OmniDocBench in it; give its metric_result.json")
    return Total(0, **found)


def _at(data: Any, place: tuple[str, ...]) -> float | None:
    for name in place:
        data = data.get(name) if isinstance(data, dict) else None
    is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
    return float(data) if is_number and 0 <= data <= 1 else None

"""A parity report as the figures of one page: one form for every report, and for the history's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsocr_core.reading.margins import margins_row
from dsocr_core.reading.parity_records import ParityReport, Verdict

_NOT_COMPARED: Verdict = "not_comparable"


def parity_figures(report: ParityReport | None, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """The flat figures: verdict, reasons, tokens, inputs, shift, error rate; null where not known.

    `reasons` say why there is no report.
    """
    divergence = report.first_divergence if report else None
    return {
        "verdict": report.verdict if report else _NOT_COMPARED,
        "reasons": list(report.reasons if report else reasons),
        "tokens_equal": report.tokens_equal if report else None,
        "first_divergence": divergence.index if divergence else None,
        "input_parity": report.input_parity if report else None,
        "max_coordinate_difference_percent": report.max_coordinate_difference_percent if report else None,
        "character_error_rate": report.character_error_rate if report else None,
    }


def parity_document(report: ParityReport | None, reasons: Sequence[str] = ()) -> dict[str, Any]:
    """The figures as JSON documents have them, with boxes (a, b, matched) and margins."""
    divergence = report.first_divergence if report else None
    return parity_figures(report, reasons) | {
        "margins": margins_row(divergence.margins if divergence else None),
        "boxes": {
            "a": report.boxes_a if report else None,
            "b": report.boxes_b if report else None,
            "matched": report.boxes_matched if report else None,
        },
    }

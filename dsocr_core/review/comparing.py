"""A page's comparison made into a `PageReview`: differences, reading order, hints, score. Pure."""

from __future__ import annotations

from dataclasses import replace

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity import comparable, sized
from dsocr_core.reading.parity_records import ParityReport
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.differences import block_texts, differences, unread
from dsocr_core.review.hints import hints
from dsocr_core.review.order import NO_ORDER, reading_order
from dsocr_core.review.page import PageReview
from dsocr_core.review.score import score_parts


def compare_page(names: tuple[str | None, str | None], comparison: Comparison) -> PageReview:
    """Everything about a page that the queue needs. `names` are the page's in both runs."""
    a, b, report = comparison.a, comparison.b, comparison.report
    light = replace(comparison, a=_light(a, b), b=_light(b, a))
    if a is None or b is None or report is None:
        return _not_compared(names, light)
    left, right = comparable(a, b)
    order = reading_order(report.pairs)
    blocks = block_texts(left, right, report.pairs)
    found = differences(left, right, report.pairs, order, blocks, report.inputs)
    lengths = (len(left.token_ids or ()), len(right.token_ids or ()))
    parts = score_parts(report.verdict, report, found, order, lengths)
    return PageReview(
        names=names,
        comparison=light,
        report=report,
        reasons=report.reasons,
        differences=found,
        order=order,
        blocks=blocks,
        hints=hints(a, b, report, found),
        score=round(sum(parts.values()), 3),
        parts=parts,
    )


def _not_compared(names: tuple[str | None, str | None], comparison: Comparison) -> PageReview:
    found = unread(names, comparison)
    report: ParityReport | None = None
    parts = score_parts("not_comparable", report, found, NO_ORDER, (0, 0))
    absent = tuple(item.words for item in found if item.kind == "absent")
    return PageReview(
        names=names,
        comparison=comparison,
        report=report,
        reasons=(*comparison.reasons, *absent),
        differences=found,
        order=NO_ORDER,
        blocks=(),
        hints=(),
        score=round(sum(parts.values()), 3),
        parts=parts,
    )


def _light(result: OcrResult | None, other: OcrResult | None) -> OcrResult | None:
    """A result without what is read when its page is shown, on a page of a known size if any side has it."""
    if result is None:
        return None
    if other is not None and not all(result.image_size) and all(other.image_size):
        result = sized(result, other)
    return replace(result, token_texts=(), top_two=(), timings=())

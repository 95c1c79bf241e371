"""A page's both sides made into a `PageReview`: parity, differences, hints, score. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

from dsocr_core.markup import SCALE, page_boxes, parse
from dsocr_core.outputs.margins import margins
from dsocr_core.outputs.parity import parity
from dsocr_core.outputs.postprocess import result_mmd
from dsocr_core.parity_records import ParityReport, Tolerance
from dsocr_core.records import NGRAM_SAVE_RESULTS, FinishReason, OcrRequest, OcrResult, StageTiming
from dsocr_core.review.differences import block_texts, differences
from dsocr_core.review.hints import hints
from dsocr_core.review.inputs import SideInputs, input_lines
from dsocr_core.review.order import NO_ORDER, reading_order
from dsocr_core.review.page import Difference, PageReview, PageSide
from dsocr_core.review.read_with import policy_of
from dsocr_core.review.recorded import Steps
from dsocr_core.review.score import score_parts


def compare_page(
    name: str, a: SideInputs | None, b: SideInputs | None, tolerance: Tolerance | None = None
) -> PageReview:
    """Everything about a page that the queue needs; None for a side that does not have it."""
    if a is None or b is None or a.page.text_raw is None or b.page.text_raw is None:
        return _not_compared(name, *(side.page if side else None for side in (a, b)))
    left, right = _comparable(a.page, b.page)
    report = _parity(a, b, left, right, tolerance)
    order = reading_order(report.pairs)
    blocks = block_texts(left, right, report.pairs)
    found = differences(left, right, report.pairs, order, blocks, report.inputs, (a.limit, b.limit))
    lengths = (len(left.token_ids or ()), len(right.token_ids or ()))
    parts = score_parts(report.verdict, report, found, order, lengths)
    # Parity has read the boxes of both texts; it is the slowest part of it.
    boxes_a = sorted((pair.a for pair in report.pairs if pair.a), key=lambda box: box.index)
    boxes_b = sorted((pair.b for pair in report.pairs if pair.b), key=lambda box: box.index)
    return PageReview(
        name=name,
        a=replace(a.page, boxes=tuple(boxes_a)) if left is a.page else _with_boxes(a.page, b.page),
        b=replace(b.page, boxes=tuple(boxes_b)) if right is b.page else _with_boxes(b.page, a.page),
        report=report,
        verdict=report.verdict,
        reasons=report.reasons,
        differences=found,
        order=order,
        blocks=blocks,
        hints=hints(left, right, report, found),
        score=round(sum(parts.values()), 3),
        parts=parts,
    )


def _not_compared(name: str, a: PageSide | None, b: PageSide | None) -> PageReview:
    found: tuple[Difference, ...] = differences(a, b, (), NO_ORDER, (), ())
    parts = score_parts("not_comparable", None, found, NO_ORDER, (0, 0))
    return PageReview(
        name=name,
        a=_with_boxes(a, b) if a else None,
        b=_with_boxes(b, a) if b else None,
        report=None,
        verdict="not_comparable",
        reasons=tuple(item.words for item in found if item.kind in ("failed", "absent")),
        differences=found,
        order=NO_ORDER,
        blocks=(),
        hints=(),
        score=round(sum(parts.values()), 3),
        parts=parts,
    )


def _with_boxes(side: PageSide, other: PageSide | None) -> PageSide:
    spans = () if side.plain else parse(side.text_raw or "")
    return replace(side, boxes=page_boxes(spans, *page_size(side, other)))


def _comparable(a: PageSide, b: PageSide) -> tuple[PageSide, PageSide]:
    """Both as plain text when one of them is nothing else: boxes without counterparts are no difference."""
    if a.plain == b.plain:
        return a, b
    left, right = (
        side if side.plain else replace(side, text_raw=result_mmd(side.text_raw or ""), plain=True)
        for side in (a, b)
    )
    return left, right


def _parity(
    a: SideInputs, b: SideInputs, left: PageSide, right: PageSide, tolerance: Tolerance | None
) -> ParityReport:
    report = parity(
        result_of(replace(a, page=left), page_size(left, right)),
        result_of(replace(b, page=right), page_size(right, left)),
        tolerance,
        input_lines(a, b),
    )
    divergence = report.first_divergence
    if divergence is None or divergence.index >= min(len(left.token_ids or ()), len(right.token_ids or ())):
        return report  # no divergence, or one side had ended there
    # The logits of this step alone were read, not those of every step.
    found = margins(a.top_two, b.top_two, (a.dtype, b.dtype))
    return replace(report, first_divergence=replace(divergence, margins=found))


def result_of(
    side: SideInputs,
    size: tuple[int, int],
    steps: Steps | None = None,
    timings: tuple[StageTiming, ...] = (),
) -> OcrResult:
    """A side as a result; None is what was not recorded.

    A request always has a preset, a prompt and an n-gram size: where they were not recorded they are empty,
    or the usual size. `input_lines` says what is known of them.
    """
    page, recorded = side.page, steps or Steps()
    ngram_size = side.ngram_size
    return OcrResult(
        backend=page.backend or side.record.engine or side.record.source,
        request=OcrRequest(
            image=Path(page.path or page.page),
            preset=page.preset or "",
            prompt=side.prompt or "",
            max_new_tokens=side.limit,
            no_repeat_ngram_size=NGRAM_SAVE_RESULTS if ngram_size is None else ngram_size,
            source=page.source or page.page,
            **policy_of(side.record, page.backend),
        ),
        image_size=size,
        text_raw=page.text_raw or "",
        token_ids=page.token_ids,
        token_texts=recorded.texts,
        finish_reason=_finish(page),
        inputs=side.inputs,
        timings=timings,
        environment=_environment(side),
        top_two=recorded.top,
    )


def _finish(page: PageSide) -> FinishReason | None:
    reasons: tuple[FinishReason, ...] = get_args(FinishReason)
    return next((reason for reason in reasons if reason == page.finish_reason), None)


def page_size(*sides: PageSide | None) -> tuple[int, int]:
    """The first recorded (width, height) in pixels; without any, pixels are the model's own coordinates."""
    sizes = ((side.width, side.height) for side in sides if side and side.width and side.height)
    return next(((width, height) for width, height in sizes if width and height), (SCALE, SCALE))


def _environment(side: SideInputs) -> dict[str, str]:
    """What the run says about that backend's surroundings."""
    environment = side.record.environment
    own = environment.get(side.page.backend or "")
    values = own if isinstance(own, dict) else environment
    return {str(name): str(value) for name, value in values.items() if isinstance(value, (str, int, float))}

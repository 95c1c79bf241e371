"""Parity of two results: a pure function, whichever backend each is from.

Every difference is within tolerance or beyond it. None: identical. All within: within tolerance. One beyond:
differs. Results of different pages are not comparable. A page that is cut off on one side differs, however
little is missing, and so does a page that is not identical where the end of a side is not known.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from dsocr_core.base.formatting import plural
from dsocr_core.reading.boxes import match_boxes
from dsocr_core.reading.differences import (
    character_error_rate,
    one_sided,
    output_differences,
    text_without_markup,
)
from dsocr_core.reading.input_parity import IMAGE, LIMIT, PAGE_SIZE, causes, input_lines, inputs_words
from dsocr_core.reading.markup import END_MARKER, SCALE
from dsocr_core.reading.parity_records import (
    Difference,
    Divergence,
    InputLine,
    Kind,
    Margins,
    ParityReport,
    Tolerance,
    Verdict,
    in_order,
    sentences,
)
from dsocr_core.reading.postprocess import clean_text, result_mmd
from dsocr_core.reading.records import SIDES, OcrRequest, OcrResult, Side

_CONTEXT_TOKENS = 12
_MOST_OF_AN_ERROR = 300


def compare_results(a: OcrResult, b: OcrResult, tolerance: Tolerance | None = None) -> ParityReport:
    """Compare two results of the same page; B is the reference."""
    tolerance, as_read, lines = tolerance or Tolerance(), (a, b), input_lines(a, b)
    ends, boxes = [_end(side) for side in as_read], [side.boxes_known or None for side in as_read]
    a, b = comparable(a, b)
    pairs = match_boxes(a.boxes, b.boxes, tolerance.shift_percent)
    shifts = [pair.shift_percent for pair in pairs if pair.shift_percent is not None]
    tokens_equal = None if a.token_ids is None or b.token_ids is None else a.token_ids == b.token_ids
    if other := _other_pages(a, b, lines):
        named = [line for line in lines if line.name not in (PAGE_SIZE, IMAGE)]
        found = [other, *_settings(named, "length" in ends, "inputs")]
    else:
        # Equal texts have equal boxes: the boxes are read from them.
        same = clean_text(a.text_raw) == clean_text(b.text_raw) and tokens_equal is not False
        found = [] if same and None in ends else one_sided(a, b)
        if not same:
            found += [Difference("ended", f"of {unknown}")] if (unknown := _unknown(ends)) else []
            found += output_differences(a, b, pairs, tolerance)
        found += [Difference("plain", f"of {alone}", within=True)] if (alone := _unknown(boxes)) else []
        found += _settings(lines, "length" in ends, "inputs" if found or not same else "same_text")
    divergence = None if tokens_equal else _first_divergence(a, b)
    verdict: Verdict = "within_tolerance" if found else "identical"
    if not all(item.within for item in found):
        verdict = "not_comparable" if other else "differs"
    words = (text_without_markup(side) for side in (a, b))
    return ParityReport(
        verdict=verdict,
        differences=in_order(found),
        causes=causes(*as_read, found, lines, divergence),
        pairs=pairs,
        boxes_a=len(a.boxes),
        boxes_b=len(b.boxes),
        boxes_matched=len(shifts),
        max_coordinate_difference_percent=max(shifts, default=None),
        tokens_equal=tokens_equal,
        first_divergence=divergence,
        character_error_rate=character_error_rate(*words),
        inputs=lines,
        boxes_known=None not in boxes,
    )


def _unknown(facts: Sequence[object]) -> str:
    """The sides of which a fact is not known: "A and B"."""
    return " and ".join(name for name, fact in zip("AB", facts, strict=True) if fact is None)


def _end(result: OcrResult) -> str | None:
    """Tell how a result ended, as its backend says or its text shows; None when neither does."""
    return result.finish_reason or ("eos" if result.text_raw.endswith(END_MARKER) else None)


def _other_pages(a: OcrResult, b: OcrResult, lines: Sequence[InputLine]) -> Difference | None:
    """Why both sides did not read the same pages; None when nothing says so."""
    if len(a.sizes) != len(b.sizes):
        return Difference("pages", f"A read {plural(len(a.sizes), 'page')}, B {len(b.sizes)}")
    for number, sizes in enumerate(zip(a.sizes, b.sizes, strict=True), start=1):
        if sizes[0] != sizes[1]:
            which = "page sizes" if len(a.sizes) == 1 else f"sizes of page {number}"
            words = " and ".join(f"{width} x {height}" for width, height in sizes)
            return Difference("pages", f"{which} differ, {words}")
    files = any(line.name == IMAGE and line.unequal for line in lines)
    return Difference("pages", "the image files differ") if files else None


def _settings(lines: Sequence[InputLine], cut: bool, kind: Kind) -> list[Difference]:
    """Settings that are known to differ; the token limit is among them where a side ended at it.

    They are within tolerance and never identical, even where the outputs are the same.
    """
    unequal = [each for each in lines if each.unequal or (each.name == LIMIT and each.differs and cut)]
    names = ", ".join(line.name for line in unequal)
    return [Difference(kind, inputs_words(unequal), True, evidence={"lines": names})] if unequal else []


def comparable(a: OcrResult, b: OcrResult) -> tuple[OcrResult, OcrResult]:
    """Both results in one form and on one page.

    Where one side does not tell boxes, the other is its text without them, as the published code writes it. A
    size that is not known is the other side's; without any, pixels are the model's own coordinates.
    """
    if a.boxes_known != b.boxes_known:
        a, b = (_without_boxes(result) if result.boxes_known else result for result in (a, b))
    return with_page_size(a, b), with_page_size(b, a)


def with_page_size(result: OcrResult, other: OcrResult | None) -> OcrResult:
    """A result on a page whose size is known, if need be from the other side."""
    sizes = [side.image_size for side in (result, other) if side is not None and all(side.image_size)]
    size = next(iter(sizes), (SCALE, SCALE))
    return result if result.image_size == size else replace(result, image_size=size)


def _without_boxes(result: OcrResult) -> OcrResult:
    text = result_mmd(result.text_raw, result.request.form, result.blocks)
    return replace(result, text_raw=text, token_ids=None, token_texts=(), top_two=())


# --- the first divergence -------------------------------------------------------------------------


def _first_divergence(a: OcrResult, b: OcrResult) -> Divergence | None:
    """The first new token in which two results differ, None when they are equal or not known on a side.

    Tokens decoded one by one may be longer than their text: its common start bounds the offset of A's box.
    """
    index = first_difference(a.token_ids, b.token_ids)
    if index is None:
        return None
    offset = sum(map(len, a.token_texts[:index])) if a.token_texts else len(a.text_raw)
    differs = first_difference(a.text_raw, b.text_raw)
    offset = offset if differs is None else min(offset, differs)
    boxes = sum(len(span.boxes) for span in a.blocks if span.start <= offset)
    context = "".join(a.token_texts[max(0, index - _CONTEXT_TOKENS) : index])
    margins = None
    if index < min(a.new_tokens or 0, b.new_tokens or 0):  # neither had ended
        top_a, top_b = (side.top_two[index] if index < len(side.top_two) else None for side in (a, b))
        margins = Margins.of(top_a, top_b, *(side.inputs.dtype if side.inputs else None for side in (a, b)))
    return Divergence(index, context, boxes - 1 if boxes else None, margins)


def first_difference(a: Sequence[Any] | None, b: Sequence[Any] | None) -> int | None:
    """Index of the first item that differs or that one side lacks; None when all are equal or not known."""
    if a is None or b is None or a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip_longest(a, b)) if x != y), None)


# --- the outcome of a page ------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Outcome of one page. A side that was not asked for or that failed has no result."""

    request: OcrRequest
    a: OcrResult | None = None
    b: OcrResult | None = None
    errors: dict[Side, str] = field(default_factory=dict)
    recorded_at: str | None = None  # ISO 8601 UTC time, where everything here is from the result cache
    tolerance: Tolerance = field(default_factory=Tolerance)

    @functools.cached_property
    def report(self) -> ParityReport | None:
        return compare_results(self.a, self.b, self.tolerance) if self.a and self.b else None

    @property
    def verdict(self) -> Verdict:
        return self.report.verdict if self.report else "not_comparable"

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Reasons of the report; without one, why a side has no result and how the other ended."""
        if self.report is not None:
            return self.report.differences
        failed = [
            Difference("failed", f"{side.upper()}: {error[:_MOST_OF_AN_ERROR]}", where=side)
            for side, error in self.errors.items()
        ]
        return in_order([*failed, *one_sided(self.a, self.b)])

    @property
    def reasons(self) -> tuple[str, ...]:
        return sentences(self.differences)

    @property
    def compared(self) -> bool:
        """Tell whether both sides were asked for: each has a result or an error."""
        return {*self.results, *self.errors} == {*SIDES}

    @property
    def results(self) -> dict[Side, OcrResult]:
        """The results that are there, A's first."""
        sides: dict[Side, OcrResult | None] = {"a": self.a, "b": self.b}
        return {side: result for side, result in sides.items() if result is not None}

    def joined(self, later: Comparison) -> Comparison:
        """A comparison with the sides of both; the later one's where both have a side."""
        errors = {**self.errors, **later.errors}
        return replace(later, a=later.a or self.a, b=later.b or self.b, errors=errors)


def to_row(report: ParityReport | None, differences: Sequence[Difference] = ()) -> dict[str, Any]:
    """The figures of a page by the history's columns; without a report `differences` say why."""
    divergence = report.first_divergence if report else None
    names = ("tokens_equal", "input_parity", "max_coordinate_difference_percent", "character_error_rate")
    return {
        "verdict": report.verdict if report else "not_comparable",
        "reasons": list(sentences(report.differences if report else differences)),
        "first_divergence": divergence.index if divergence else None,
        **{name: getattr(report, name, None) for name in (*names, "boxes_a", "boxes_b", "boxes_matched")},
    }


def to_document(report: ParityReport | None, differences: Sequence[Difference] = ()) -> dict[str, Any]:
    """JSON form of a report: the row, every difference, causes, boxes (a, b, matched), margins."""
    margins = report.first_divergence.margins if report and report.first_divergence else None
    row = to_row(report, differences)
    return row | {
        "differences": [item.document() for item in (report.differences if report else differences)],
        "causes": [each.document() for each in report.causes] if report else [],
        "margins": margins and margins.document(),
        "boxes": {name: row.pop(f"boxes_{name}") for name in ("a", "b", "matched")},
    }

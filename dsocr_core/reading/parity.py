"""Parity of two results: a pure function, whichever backend each is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.boxes import coordinate_differences, match_boxes
from dsocr_core.reading.input_parity import IMAGE, PAGE_SIZE, input_lines
from dsocr_core.reading.margins import margins_at
from dsocr_core.reading.markup import END_MARKER, SCALE, Span, page_texts
from dsocr_core.reading.output_findings import OTHER_TOKENS, loose_text, output_findings
from dsocr_core.reading.parity_records import (
    BoxPair,
    Divergence,
    ParityReport,
    Tolerance,
    Verdict,
)
from dsocr_core.reading.postprocess import clean_text, result_mmd
from dsocr_core.reading.records import FinishReason, OcrResult
from dsocr_core.reading.text_diff import TEXT_LIMIT
from dsocr_core.reading.verdict import (
    Ends,
    Finding,
    end_findings,
    input_findings,
    other_page,
    verdict_of,
)

_CONTEXT_TOKENS = 12


def parity(a: OcrResult, b: OcrResult, tolerance: Tolerance | None = None) -> ParityReport:
    """Compare two results of the same page; B is the reference. The rule is in `reading.verdict`."""
    tolerance = tolerance or Tolerance()
    boxes_known = not (is_plain(a) or is_plain(b))
    lines = input_lines(a, b)
    a, b = comparable(a, b)
    pairs = match_boxes(a.boxes, b.boxes, tolerance.shift_percent)
    differences = [coordinate_differences(pair.a, pair.b) for pair in pairs if pair.a and pair.b]
    largest = max((max(sides) for sides in differences), default=None)
    mean = sum(sum(sides) / 4 for sides in differences) / len(differences) if differences else None
    words = (words_of(a.text_raw, a.blocks), words_of(b.text_raw, b.blocks))
    error_rate = character_error_rate(*words)
    equal = _tokens_equal(a, b)
    ends: Ends = (end_of(a), end_of(b))
    verdict: Verdict = "not_comparable"
    reason = other_page((a.sizes, b.sizes), lines)
    if reason:
        others = [line for line in lines if line.name not in (PAGE_SIZE, IMAGE)]
        reasons = (reason, *(finding.words for finding in input_findings(others, ends)))
    else:
        # Equal texts have equal boxes: the boxes are read from them.
        same_text = clean_text(a.text_raw) == clean_text(b.text_raw)
        same_output = same_text and equal is not False
        differing = [] if same_output else _differing(a, b, pairs, words, error_rate, tolerance)
        if not boxes_known:
            differing = [*differing, Finding("boxes are not known", within=True)]
        verdict, reasons = verdict_of(
            [*input_findings(lines, ends), *end_findings(ends, same_output), *differing]
        )
    return ParityReport(
        verdict=verdict,
        reasons=reasons,
        pairs=pairs,
        boxes_a=len(a.boxes),
        boxes_b=len(b.boxes),
        boxes_matched=len(differences),
        max_coordinate_difference_percent=largest,
        mean_coordinate_difference_percent=mean,
        tokens_equal=equal,
        first_divergence=None if equal else first_divergence(a, b),
        character_error_rate=error_rate,
        inputs=lines,
        boxes_known=boxes_known,
    )


def _differing(
    a: OcrResult,
    b: OcrResult,
    pairs: Sequence[BoxPair],
    words: tuple[str, str],
    error_rate: float,
    tolerance: Tolerance,
) -> list[Finding]:
    """Findings of two outputs; of several pages each by itself, named, in their order."""
    if a.request.form.pages is None and b.request.form.pages is None:
        sides = (a.text_raw, a.blocks), (b.text_raw, b.blocks)
        return _findings(*sides, pairs, words, error_rate, tolerance)
    found = []
    if a.notes != b.notes:
        noted = (("A", a.notes), ("B", b.notes))
        found = [Finding(f"{side}: {note}", within=False) for side, notes in noted for note in notes]
    texts = (page_texts(side.text_raw, side.blocks) for side in (a, b))
    nothing: tuple[str, tuple[Span, ...]] = ("", ())
    for number, (of_a, of_b) in enumerate(zip_longest(*texts, fillvalue=nothing)):
        if clean_text(of_a[0]) != clean_text(of_b[0]):
            own = [pair for pair in pairs if pair.page == number - 1]
            words = (words_of(*of_a), words_of(*of_b))
            where = f"page {number}" if number else "before the first page"
            found += [
                replace(finding, words=f"{where}: {finding.words}")
                for finding in _findings(of_a, of_b, own, words, character_error_rate(*words), tolerance)
            ]
    return found or [Finding(OTHER_TOKENS, within=True)]


def _findings(
    a: tuple[str, Sequence[Span]],
    b: tuple[str, Sequence[Span]],
    pairs: Sequence[BoxPair],
    words: tuple[str, str],
    error_rate: float,
    tolerance: Tolerance,
) -> list[Finding]:
    """Findings of two texts with their spans."""
    beyond_limit = words[0][TEXT_LIMIT:] != words[1][TEXT_LIMIT:]
    loose = (loose_text(*a), loose_text(*b))
    return output_findings(pairs, words, loose, (error_rate, beyond_limit), tolerance)


def end_of(result: OcrResult) -> FinishReason | None:
    """Tell how a result ended, as its backend says or its text shows; None when neither does."""
    if result.finish_reason is None and result.text_raw.endswith(END_MARKER):
        return "eos"
    return result.finish_reason


def comparable(a: OcrResult, b: OcrResult) -> tuple[OcrResult, OcrResult]:
    """Both results in one form and on one page.

    Where one side does not tell boxes, the other is its text without them, as the published code writes it:
    boxes without counterparts are no difference. A size that is not known is the other side's; without any,
    pixels are the model's own coordinates.
    """
    if is_plain(a) != is_plain(b):
        a, b = (result if is_plain(result) else _as_plain(result) for result in (a, b))
    return sized(a, b), sized(b, a)


def sized(result: OcrResult, other: OcrResult | None) -> OcrResult:
    """A result on a page whose size is known, if need be from the other side."""
    sizes = [side.image_size for side in (result, other) if side is not None and all(side.image_size)]
    size = next(iter(sizes), (SCALE, SCALE))
    return result if result.image_size == size else replace(result, image_size=size)


def is_plain(result: OcrResult) -> bool:
    """Tell whether a result does not tell the boxes of its page, which is not to say that there are none."""
    return not result.boxes_known


def _as_plain(result: OcrResult) -> OcrResult:
    return replace(
        result,
        text_raw=result_mmd(result.text_raw, result.request.form, result.blocks),
        token_ids=None,
        token_texts=(),
        top_two=(),
    )


def _tokens_equal(a: OcrResult, b: OcrResult) -> bool | None:
    return None if a.token_ids is None or b.token_ids is None else a.token_ids == b.token_ids


def words_of(text_raw: str, spans: Sequence[Span]) -> str:
    """Give what a text says without the markup of its boxes, which are compared as boxes, and its end
    marker.
    """
    parts, position = [], 0
    for span in spans:
        if span.boxes:
            parts.append(text_raw[position : span.start])
            position = span.end
    return clean_text("".join((*parts, text_raw[position:])))


def character_error_rate(text: str, reference: str) -> float:
    """Edits from `text` to `reference` per character of the reference; 0 for two empty texts.

    Only the first 100,000 characters of each are measured. May exceed 1 for a text that is too long.
    """
    text, reference = text[:TEXT_LIMIT], reference[:TEXT_LIMIT]
    if text == reference:
        return 0.0
    return Levenshtein.distance(text, reference) / max(1, len(reference))


# --- the first divergence -------------------------------------------------------------------------


def first_divergence(a: OcrResult, b: OcrResult) -> Divergence | None:
    """The first new token in which two results differ, None when they are equal or not known on a side."""
    if a.token_ids is None or b.token_ids is None:
        return None
    index = first_difference(a.token_ids, b.token_ids)
    if index is None:
        return None
    return Divergence(
        index=index,
        text_a=_token_text(a, a.token_ids, index),
        text_b=_token_text(b, b.token_ids, index),
        context="".join(a.token_texts[max(0, index - _CONTEXT_TOKENS) : index]),
        box_a=_box_at(_offset(a, b, index), a),
        box_b=_box_at(_offset(b, a, index), b),
        margins=margins_at(a, b, index),
    )


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that is not the same, or that one side lacks; None when all are equal."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip_longest(a, b)) if x != y), None)


def _token_text(result: OcrResult, tokens: Sequence[int], index: int) -> str:
    if index >= len(tokens):
        return "(ended)"
    if index < len(result.token_texts):
        return result.token_texts[index]
    return f"#{tokens[index]}"


def _offset(result: OcrResult, other: OcrResult, index: int) -> int:
    """Offset in a result's text of the token at `index`.

    Tokens decoded one by one may be longer than the text they make together (a character split over
    tokens), so the common beginning of both texts bounds the offset at which they differ.
    """
    offset = sum(map(len, result.token_texts[:index])) if result.token_texts else len(result.text_raw)
    if result.text_raw != other.text_raw:
        pairs = zip_longest(result.text_raw, other.text_raw)
        offset = min(offset, next(i for i, (x, y) in enumerate(pairs) if x != y))
    return offset


def _box_at(offset: int, result: OcrResult) -> int | None:
    """Index of the last box whose span starts at or before that offset of the text."""
    count = sum(len(span.boxes) for span in result.blocks if span.start <= offset)
    return result.boxes[count - 1].index if count else None

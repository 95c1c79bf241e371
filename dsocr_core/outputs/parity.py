"""Parity of two results: a pure function, whichever backend each took."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from dsocr_core.outputs.boxes import MOVED_PERCENT, coordinate_differences, match_boxes, page_boxes
from dsocr_core.outputs.margins import margins_at
from dsocr_core.outputs.markup import Span, parse
from dsocr_core.outputs.postprocess import clean_text
from dsocr_core.parity_records import Box, BoxPair, Divergence, InputDifference, ParityReport
from dsocr_core.records import ModelInputs, OcrResult

BOX_TOLERANCE = 1
"""A page passes with at most this many boxes more or less."""

TEXT_TOLERANCE = 0.02
"""Character error rate up to which a page without any box passes: there the text is all there is."""

_CONTEXT_TOKENS = 12
_TEXT_LIMIT = 100_000
"""Characters of each text that the error rate looks at: the distance is quadratic in their number."""


def parity(ours: OcrResult, vendor: OcrResult) -> ParityReport:
    """Compare two results of the same page; the second is the reference.

    Passes with at most one box more or less and at most 2 percent of the page's side between matched
    boxes. A box without a partner and one under another label are each a box more or less. Tokens, text
    and inputs are reported beside the verdict; the text decides only where neither backend wrote a box.
    """
    spans_ours, spans_vendor = parse(ours.text_raw), parse(vendor.text_raw)
    boxes_a = page_boxes(spans_ours, *ours.image_size)
    boxes_b = page_boxes(spans_vendor, *vendor.image_size)
    pairs = match_boxes(boxes_a, boxes_b)
    differences = [coordinate_differences(pair.a, pair.b) for pair in pairs if pair.a and pair.b]
    largest = max((max(sides) for sides in differences), default=None)
    mean = sum(sum(sides) / 4 for sides in differences) / len(differences) if differences else None
    error_rate = character_error_rate(clean_text(ours.text_raw), clean_text(vendor.text_raw))
    reasons = _reasons(ours, vendor, len(boxes_a), len(boxes_b), pairs, largest)
    if not pairs and error_rate > TEXT_TOLERANCE:
        reasons += (f"no boxes, and the texts differ by {error_rate:.1%}: at most {TEXT_TOLERANCE:.0%}",)
    return ParityReport(
        verdict="fail" if reasons else "pass",
        reasons=reasons,
        pairs=pairs,
        boxes_a=len(boxes_a),
        boxes_b=len(boxes_b),
        boxes_matched=len(differences),
        max_coordinate_difference_percent=largest,
        mean_coordinate_difference_percent=mean,
        tokens_equal=ours.token_ids == vendor.token_ids,
        first_divergence=first_divergence(ours, vendor, spans_ours, boxes_a),
        character_error_rate=error_rate,
        inputs=compare_inputs(ours.inputs, vendor.inputs),
    )


def _reasons(
    ours: OcrResult,
    vendor: OcrResult,
    count_ours: int,
    count_vendor: int,
    pairs: Sequence[BoxPair],
    largest: float | None,
) -> tuple[str, ...]:
    reasons = []
    if ours.image_size != vendor.image_size:
        reasons.append(f"page sizes differ: {ours.image_size} and {vendor.image_size}")
    if abs(count_ours - count_vendor) > BOX_TOLERANCE:
        reasons.append(f"{count_ours} boxes against {count_vendor}: at most {BOX_TOLERANCE} may differ")
    alone = sum(pair.state in ("only_a", "only_b") for pair in pairs)
    relabelled = sum(pair.state == "relabelled" for pair in pairs)
    # As many boxes in other places, or under other labels, are no match either.
    if alone + relabelled > BOX_TOLERANCE and abs(count_ours - count_vendor) <= BOX_TOLERANCE:
        reasons.append(
            f"{alone} boxes have no partner and {relabelled} another label: "
            f"at most {BOX_TOLERANCE} may differ"
        )
    if largest is not None and largest > MOVED_PERCENT:
        reasons.append(f"a box is off by {largest:.3g} % of the page: at most {MOVED_PERCENT:g} %")
    return tuple(reasons)


def character_error_rate(text: str, reference: str) -> float:
    """Edits from `text` to `reference` per character of the reference; 0 for two empty texts.

    Only the first 100,000 characters of each are looked at. May exceed 1 for a text that is too long.
    """
    text, reference = text[:_TEXT_LIMIT], reference[:_TEXT_LIMIT]
    if text == reference:
        return 0.0
    return Levenshtein.distance(text, reference) / max(1, len(reference))


def first_divergence(
    ours: OcrResult, vendor: OcrResult, spans: Sequence[Span], boxes: Sequence[Box]
) -> Divergence | None:
    """The first new token in which two results differ, None when they are equal."""
    index = first_difference(ours.token_ids, vendor.token_ids)
    if index is None:
        return None
    return Divergence(
        index=index,
        text_a=_token_text(ours, index),
        text_b=_token_text(vendor, index),
        context="".join(ours.token_texts[max(0, index - _CONTEXT_TOKENS) : index]),
        box_index=_box_at(_place(ours, vendor, index), spans, boxes),
        margins=margins_at(ours, vendor, index),
    )


def first_difference(ours: Sequence[int], vendor: Sequence[int]) -> int | None:
    """Index of the first token that is not the same, or that one side lacks; None when all are equal."""
    if ours == vendor:
        return None
    return next((i for i, (a, b) in enumerate(zip_longest(ours, vendor)) if a != b), None)


def _token_text(result: OcrResult, index: int) -> str:
    if index >= len(result.token_ids):
        return "(ended)"
    if index < len(result.token_texts):
        return result.token_texts[index]
    return f"#{result.token_ids[index]}"


def _place(ours: OcrResult, vendor: OcrResult, index: int) -> int:
    """Offset in our text of the token at `index`.

    Tokens decoded one by one may be longer than the text they make together (a character split over
    tokens), so the common beginning of both texts bounds the place where they differ.
    """
    place = sum(map(len, ours.token_texts[:index])) if ours.token_texts else len(ours.text_raw)
    if ours.text_raw != vendor.text_raw:
        pairs = zip_longest(ours.text_raw, vendor.text_raw)
        place = min(place, next(i for i, (a, b) in enumerate(pairs) if a != b))
    return place


def _box_at(position: int, spans: Sequence[Span], boxes: Sequence[Box]) -> int | None:
    """Index of the last box whose span starts at or before that place in our text."""
    count = sum(len(span.boxes) for span in spans if span.start <= position)
    return boxes[count - 1].index if count else None


def compare_inputs(ours: ModelInputs, vendor: ModelInputs) -> tuple[InputDifference, ...]:
    """What went into both models, line by line.

    Attention and the token limit are shown and do not decide: our default attention has no counterpart
    in the published decoder, and a limit that is never reached changes nothing.
    """

    def line(name: str, a: object, b: object, decides: bool = True) -> InputDifference:
        return InputDifference(name, str(a), str(b), a == b, decides)

    def shape(values: tuple[int, ...]) -> str:
        return " x ".join(map(str, values))

    same_ids = ours.prompt_ids == vendor.prompt_ids
    return (
        line("prompt tokens", len(ours.prompt_ids), len(vendor.prompt_ids)),
        InputDifference(
            "prompt ids", _first_ids(ours, vendor, 0), _first_ids(ours, vendor, 1), same_ids, decides=True
        ),
        line("image tokens", ours.image_token_count, vendor.image_token_count),
        line("image mask", _runs(ours.image_mask), _runs(vendor.image_mask)),
        line("grid", shape(ours.grid), shape(vendor.grid)),
        line("global view", shape(ours.global_shape), shape(vendor.global_shape)),
        line("global view SHA-256", ours.global_sha256, vendor.global_sha256),
        line("tiles", shape(ours.tiles_shape), shape(vendor.tiles_shape)),
        line("tiles SHA-256", ours.tiles_sha256, vendor.tiles_sha256),
        line("n-gram size", ours.no_repeat_ngram_size, vendor.no_repeat_ngram_size),
        line("dtype", ours.dtype, vendor.dtype),
        line("rotary frequencies", ours.rotary_dtype, vendor.rotary_dtype),
        line("attention", ours.attention, vendor.attention, decides=False),
        line("token limit", ours.max_new_tokens, vendor.max_new_tokens, decides=False),
    )


def _first_ids(ours: ModelInputs, vendor: ModelInputs, side: int) -> str:
    """All ids when both are equal, else those around the first difference."""
    ids = (ours.prompt_ids, vendor.prompt_ids)
    first = next((i for i, (a, b) in enumerate(zip_longest(*ids)) if a != b), 0)
    shown = ids[side][max(0, first - 3) : first + 8]
    prefix = f"from {max(0, first - 3)}: " if first > 3 else ""
    return f"{prefix}{' '.join(map(str, shown))} ..."


def _runs(mask: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{start}..{start + length - 1}" for start, length in mask) or "none"

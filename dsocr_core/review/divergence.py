"""The first new token in which both sides differ, with the tokens around it."""

from __future__ import annotations

from collections.abc import Iterator

from dsocr_core.outputs.boxes import page_boxes
from dsocr_core.outputs.markup import parse
from dsocr_core.outputs.parity import first_divergence
from dsocr_core.records import OcrResult
from dsocr_core.review.page import Candidate, FirstDivergence, Step

AROUND = 8
"""Tokens before and after the first divergence that are shown."""


def divergence(a: OcrResult, b: OcrResult) -> FirstDivergence | None:
    """Where the tokens part; None when they are equal or were not recorded on a side."""
    if not (a.token_ids and b.token_ids):
        return None
    of_a, of_b = (
        first_divergence(one, other, spans := parse(one.text_raw), page_boxes(spans, *one.image_size))
        for one, other in ((a, b), (b, a))
    )
    if of_a is None or of_b is None:
        return None
    words = dict(_words(a)) | dict(_words(b))
    index = of_a.index
    return FirstDivergence(
        index, of_a.box_index, of_b.box_index, _steps(a, b, index, words), _steps(b, a, index, words)
    )


def _words(result: OcrResult) -> Iterator[tuple[int, str]]:
    """Texts of tokens, as far as this page shows them."""
    if len(result.token_texts) == len(result.token_ids):
        yield from zip(result.token_ids, result.token_texts, strict=True)


def _steps(result: OcrResult, other: OcrResult, index: int, words: dict[int, str]) -> tuple[Step, ...]:
    found = []
    for place in range(max(0, index - AROUND), min(len(result.token_ids), index + AROUND + 1)):
        token = result.token_ids[place]
        text = result.token_texts[place] if place < len(result.token_texts) else words.get(token)
        top = result.top_two[place] if place < len(result.top_two) else None
        pairs = zip(top.ids, top.logits, strict=True) if top else ()
        candidates = tuple(Candidate(of, words.get(of), logit) for of, logit in pairs)
        differs = place >= len(other.token_ids) or other.token_ids[place] != token
        found.append(Step(place, token, text, candidates, differs))
    return tuple(found)

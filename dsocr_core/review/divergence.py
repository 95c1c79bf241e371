"""The first new token in which both sides differ, with the tokens around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dsocr_core.history.store import History
from dsocr_core.outputs.boxes import page_boxes
from dsocr_core.outputs.markup import parse
from dsocr_core.outputs.parity import first_difference, first_divergence
from dsocr_core.records import OcrResult
from dsocr_core.review.inputs import SideInputs
from dsocr_core.review.page import Candidate, FirstDivergence, Step
from dsocr_core.review.recorded import top_two_at

Pair = tuple[SideInputs | None, SideInputs | None]

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


def with_top_two(history: History, pairs: Sequence[Pair]) -> list[Pair]:
    """Both sides of every page, with the two best logits of the step in which their tokens part."""
    steps = [_parting(a, b) for a, b in pairs]
    wanted = dict.fromkeys(
        (side.page.run_id, side.page.page, step)
        for pair, step in zip(pairs, steps, strict=True)
        for side in pair
        if side is not None and step is not None
    )
    found = top_two_at(history, [*wanted])

    def known(side: SideInputs | None, step: int | None) -> SideInputs | None:
        if side is None or step is None:
            return side
        return replace(side, top_two=found.get(((side.page.run_id, side.page.backend, side.page.page), step)))

    return [(known(a, step), known(b, step)) for (a, b), step in zip(pairs, steps, strict=True)]


def _parting(a: SideInputs | None, b: SideInputs | None) -> int | None:
    """Where the tokens of a page part; None when they do not, or are not on record."""
    if a is None or b is None or not (a.page.token_ids and b.page.token_ids):
        return None
    return first_difference(a.page.token_ids, b.page.token_ids)


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

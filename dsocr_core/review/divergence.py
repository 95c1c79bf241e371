"""The first new token in which A and B differ, with the tokens around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dsocr_core.history.store import History
from dsocr_core.outputs.parity import first_difference, first_divergence
from dsocr_core.records import OcrResult
from dsocr_core.review.inputs import SideInputs
from dsocr_core.review.page import Candidate, FirstDivergence, Step
from dsocr_core.review.recorded import top_two_at

Pair = tuple[SideInputs | None, SideInputs | None]

AROUND = 8
"""Tokens before and after the first divergence that are shown."""


def divergence(a: OcrResult, b: OcrResult) -> FirstDivergence | None:
    """Where the tokens diverge; None when they are equal or were not recorded on a side."""
    found = first_divergence(a, b)
    if found is None:
        return None
    words = dict(_words(a)) | dict(_words(b))
    index = found.index
    return FirstDivergence(
        index, found.box_a, found.box_b, _steps(a, b, index, words), _steps(b, a, index, words)
    )


def with_top_two(history: History, pairs: Sequence[Pair]) -> list[Pair]:
    """Both sides of every page, with the two best logits of the step in which they diverge."""
    steps = [_diverging_step(a, b) for a, b in pairs]
    wanted = dict.fromkeys(
        (side.page.run_id, side.page.page, step)
        for pair, step in zip(pairs, steps, strict=True)
        for side in pair
        if side is not None and step is not None
    )
    found = top_two_at(history, [*wanted])

    def completed(side: SideInputs | None, step: int | None) -> SideInputs | None:
        if side is None or step is None:
            return side
        return replace(side, top_two=found.get(((side.page.run_id, side.page.backend, side.page.page), step)))

    return [(completed(a, step), completed(b, step)) for (a, b), step in zip(pairs, steps, strict=True)]


def _diverging_step(a: SideInputs | None, b: SideInputs | None) -> int | None:
    """Where the tokens of a page diverge; None when they do not, or were not recorded."""
    if a is None or b is None or a.page.token_ids is None or b.page.token_ids is None:
        return None
    return first_difference(a.page.token_ids, b.page.token_ids)


def _words(result: OcrResult) -> Iterator[tuple[int, str]]:
    """Texts of tokens, as far as this page shows them."""
    if len(result.token_texts) == result.new_tokens:
        yield from zip(result.token_ids or (), result.token_texts, strict=True)


def _steps(result: OcrResult, other: OcrResult, index: int, words: dict[int, str]) -> tuple[Step, ...]:
    found = []
    tokens, others = result.token_ids or (), other.token_ids or ()
    for step in range(max(0, index - AROUND), min(len(tokens), index + AROUND + 1)):
        token = tokens[step]
        text = result.token_texts[step] if step < len(result.token_texts) else words.get(token)
        top = result.top_two[step] if step < len(result.top_two) else None
        pairs = zip(top.ids, top.logits, strict=True) if top else ()
        candidates = tuple(Candidate(of, words.get(of), logit) for of, logit in pairs)
        differs = step >= len(others) or others[step] != token
        found.append(Step(step, token, text, candidates, differs))
    return tuple(found)

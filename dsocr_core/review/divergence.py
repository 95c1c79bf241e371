"""The first new token in which A and B differ, with the tokens around it."""

from __future__ import annotations

from collections.abc import Iterator

from dsocr_core.outputs.parity import first_divergence
from dsocr_core.records import OcrResult
from dsocr_core.review.page import Candidate, FirstDivergence, Step

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

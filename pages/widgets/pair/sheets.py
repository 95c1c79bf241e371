"""The pages of one prompt: which of them is shown, for a pair that was read from several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.markup import Span, page_texts
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import OcrResult

_MOST_IN_A_ROW = 12


def count(comparison: Comparison) -> int:
    """Pages of the prompt."""
    return len(comparison.request.images)


def text_of(result: OcrResult, sheet: int) -> tuple[str, Sequence[Span]]:
    """The text of one of its pages with its spans in it; with the first page what stands before it."""
    if result.request.form.pages is None:
        return result.text_raw, result.blocks
    head, *pages = page_texts(result.text_raw, result.blocks)
    text, spans = pages[sheet] if sheet < len(pages) else ("", ())
    if sheet or not head[0].strip():
        return text, spans
    before = len(head[0])
    moved = (replace(span, start=span.start + before, end=span.end + before) for span in spans)
    return head[0] + text, [*head[1], *moved]


def choose(comparison: Comparison, sheet: int, show: Callable[[int], None], prefix: str = "") -> None:
    """Draw a choice among the pages, those whose texts differ marked; `show` takes the number of another."""
    pages = count(comparison)
    if pages == 1:
        return
    marked = differing(comparison)
    key = f"{prefix}sheet {sheet} of {comparison.request.name}"

    def take() -> None:
        if isinstance(chosen := st.session_state[key], int):
            show(chosen)

    def words(number: int) -> str:
        return f"{number + 1} ≠" if number in marked else str(number + 1)

    draw = st.segmented_control if pages <= _MOST_IN_A_ROW else st.selectbox
    draw(f"Page of {pages}", range(pages), key=key, default=sheet, format_func=words, on_change=take)


def differing(comparison: Comparison) -> set[int]:
    """Pages whose texts are not the same on both sides."""
    if comparison.a is None or comparison.b is None:
        return set()
    texts = [
        [clean_text(text_of(side, n)[0]) for n in range(count(comparison))]
        for side in (comparison.a, comparison.b)
    ]
    return {number for number, (a, b) in enumerate(zip(*texts, strict=True)) if a != b}

"""The pages of one prompt, for a pair that was read from several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsocr_core.reading.markup import Span, page_texts
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrResult


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

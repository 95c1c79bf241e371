"""The pages of one prompt: which of them is shown, for a pair that was read from several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.markup import Span, page_texts
from dsocr_core.reading.parity_records import Verdict
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import OcrResult
from pages.widgets.components.gallery import show_gallery, window
from pages.widgets.shared import resources, soon
from pages.widgets.shared.resources import Picture
from pages.widgets.shared.strip import verdict_words

_PART = 12


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


def choose(
    comparison: Comparison, sheet: int, show: Callable[[int], None], picture: Callable[[int], Picture],
    prefix: str = "",
) -> None:  # fmt: skip
    """Draw a choice among the pages with their verdicts; `show` takes the number of another.

    `picture` makes a page's thumbnail.
    """
    pages = count(comparison)
    if pages == 1:
        return
    name, marked, report = comparison.request.name, differing(comparison), comparison.report
    tolerated = report is not None and report.verdict == "within_tolerance"
    waited = {
        number: soon.made((prefix, comparison.request, number), partial(picture, number))
        for number in window(pages, sheet, _PART)
    }

    def item(number: int) -> dict[str, Any]:
        own: Verdict = "identical" if number not in marked else "within_tolerance" if tolerated else "differs"
        words = verdict_words(own if report else None)
        small = soon.result(waited[number])
        return {
            "key": str(number), "name": f"{number + 1}", "title": f"{name}, page {number + 1}: {words.words}",
            "words": words.words, "sign": words.icon, "tone": words.tone,
            "url": resources.picture_url(small, f"{prefix}sheet {number}") if small else "",
        }  # fmt: skip

    show_gallery(
        f"{prefix}sheets", "Pages of the prompt", "strip", pages, sheet,
        lambda shown: list(map(item, shown)), lambda picked: show(int(picked)), _PART,
    )  # fmt: skip
    soon.redraw_made(waited.values())


def differing(comparison: Comparison) -> set[int]:
    """Pages on which the two sides have another text, or boxes that do not match or stand elsewhere."""
    if comparison.a is None or comparison.b is None:
        return set()
    texts = [
        [clean_text(text_of(side, n)[0]) for n in range(count(comparison))]
        for side in (comparison.a, comparison.b)
    ]
    found = {number for number, (a, b) in enumerate(zip(*texts, strict=True)) if a != b}
    pairs = comparison.report.pairs if comparison.report else ()
    return found | {pair.page for pair in pairs if pair.state != "matched" or pair.shift_percent}

"""What the published `save_results` makes of a text: its clean form, `result.mmd` and crops."""

from __future__ import annotations

from collections.abc import Sequence

from dsocr_core.markup import END_MARKER, REF, REF_END, Span, parse, pixel_corners

IMAGE_LABEL = "image"
_IMAGE_MARK = f"{REF}{IMAGE_LABEL}{REF_END}"

MAX_CROPS = 1000
MAX_CROP_SIDE = 65_500
"""Pixels; JPEG holds no more."""
MAX_CROP_PAGES = 16
"""All crops together hold at most this many times the page's pixels."""


def clean_text(text_raw: str) -> str:
    """The text without a trailing end marker, stripped; block markup stays."""
    return text_raw.removesuffix(END_MARKER).strip()


def leading_space(text_raw: str) -> int:
    """Characters that `clean_text` takes away at the beginning."""
    return len(text_raw) - len(text_raw.lstrip())


def result_mmd(text_raw: str, blocks: Sequence[Span] | None = None) -> str:
    """The text of `result.mmd`: `image` blocks become links, the markup of other blocks goes.

    Links count blocks while crops count boxes, as published; a repeated block links to its first. Two
    TeX relations become plain text whenever other markup was removed. `blocks` are those of
    `text_raw`, where they were parsed already.
    """
    text = clean_text(text_raw)
    before = leading_space(text_raw)
    links: dict[str, str] = {}
    images = others = position = 0
    parts: list[str] = []
    for span in parse(text_raw) if blocks is None else blocks:
        if not span.closed:
            continue
        start, end = span.start - before, span.end - before
        mark = text[start:end]
        parts.append(text[position:start])
        position = end
        if _IMAGE_MARK in mark:
            parts.append(links.setdefault(mark, f"![](images/{images}.jpg)\n"))
            images += 1
        else:
            others += 1
    text = "".join(parts) + text[position:]
    if others:
        text = text.replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
    return text


def crops(spans: Sequence[Span], width: int, height: int) -> dict[int, tuple[int, int, int, int]]:
    """Number -> (x1, y1, x2, y2) in pixels of every crop of a page of that size.

    All boxes of `image` blocks take a number in order; a reversed or empty one has no crop. Crops reach
    beyond the page as published, within bounds that only hostile text meets.
    """
    areas: dict[int, tuple[int, int, int, int]] = {}
    allowance = MAX_CROP_PAGES * width * height
    boxes = [box for span in spans if span.label == IMAGE_LABEL for box in span.boxes]
    for number, box in enumerate(boxes[:MAX_CROPS]):
        x1, y1, x2, y2 = pixel_corners(box, width, height)
        area = (x2 - x1) * (y2 - y1)
        inside = 0 < x2 - x1 <= MAX_CROP_SIDE and 0 < y2 - y1 <= MAX_CROP_SIDE
        if inside and area <= allowance:
            allowance -= area
            areas[number] = (x1, y1, x2, y2)
    return areas

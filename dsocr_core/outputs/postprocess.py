"""The texts of a result: without its end marker, and as the Markdown of the published `result.mmd`."""

from __future__ import annotations

from dsocr_core.outputs.markup import REF, REF_END, Span, parse

END_MARKER = "<｜end▁of▁sentence｜>"
IMAGE_LABEL = "image"
_IMAGE_MARK = f"{REF}{IMAGE_LABEL}{REF_END}"


def clean_text(text_raw: str) -> str:
    """The text without a trailing end marker, stripped; block markup stays."""
    return text_raw.removesuffix(END_MARKER).strip()


def crop_name(number: int) -> str:
    """Where the crop of that number lies beside `result.mmd`."""
    return f"images/{number}.jpg"


def markdown(text_clean: str, spans: tuple[Span, ...] | None = None) -> str:
    """The text of `result.mmd`: `image` blocks become links, the markup of other blocks goes.

    Links count blocks while crops count boxes, as published; a repeated block links to its first. Two
    TeX relations become plain text whenever other markup was removed. `spans` are `parse(text_clean)`.
    """
    closed = [span for span in (parse(text_clean) if spans is None else spans) if span.closed]
    links: dict[str, str] = {}
    images = others = 0
    parts: list[str] = []
    position = 0
    for span in closed:
        mark = text_clean[span.start : span.end]
        parts.append(text_clean[position : span.start])
        position = span.end
        if _IMAGE_MARK in mark:
            parts.append(links.setdefault(mark, f"![]({crop_name(images)})\n"))
            images += 1
        else:
            others += 1
    text = "".join(parts) + text_clean[position:]
    if others:
        text = text.replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
    return text

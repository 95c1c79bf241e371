"""Forms that the published `save_results` makes of a text: its clean form, `result.mmd` and crops."""

from __future__ import annotations

from collections.abc import Sequence

from dsocr_core.models.spec import Markup
from dsocr_core.reading.markup import (
    END_MARKER,
    PAGE,
    REF,
    REF_END,
    REF_FORM,
    Form,
    Span,
    det_marks,
    page_places,
    parse,
    pixel_corners,
)

IMAGE_LABEL = "image"
_IMAGE_MARK = f"{REF}{IMAGE_LABEL}{REF_END}"

_RELATIONS = {"\\coloneqq": ":=", "\\eqqcolon": "=:"}
_MOST_WORK = 2_000_000_000
"""Characters looked at where replacements are made one after the other; more than a model can write."""

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


def result_mmd(text_raw: str, form: Form = REF_FORM, blocks: Sequence[Span] | None = None) -> str:
    """The text of `result.mmd`: `image` blocks become links, the markup of other blocks goes.

    Links count blocks while crops count boxes, as published; a repeated block links to its first. Two
    TeX relations become plain text whenever other markup was removed. `blocks` are those of `text_raw`,
    where they were parsed already. Of several pages each is made by itself; those that the prompt did not
    have stay as they are, and so does what stands before the first, which the published code drops.
    """
    text = clean_text(text_raw)
    if form.pages is None:
        before = leading_space(text_raw)
        spans = parse(text_raw, form) if blocks is None else blocks
        places = [(span.start - before, span.end - before) for span in spans if span.closed]
        return _made(text, form.markup, places)
    head, *pages = (text[start:end].strip() for start, end in page_places(text))
    for number, page in enumerate(pages[: form.pages]):
        places = [(span.start, span.end) for span in parse(page, Form(form.markup)) if span.closed]
        pages[number] = _made(page, form.markup, places, page_prefix(number))
    return "\n".join([*([head] if head else []), *(part for page in pages for part in (PAGE, page))])


def page_prefix(number: int) -> str:
    """Begin the names of the pictures of a page among several, as published."""
    return f"page_{number}_"


def _made(text: str, markup: Markup, places: Sequence[tuple[int, int]], prefix: str = "") -> str:
    """A page's text without its markup, which stands at `places`; `prefix` begins its pictures' names.

    As published every replacement is made in the whole text that the one before it left. Where that would be
    more work than any model's text is, each mark is replaced in its place.
    """
    published = [(text[start:end], "") for start, end in places] if markup == "ref" else det_marks(text)
    links: dict[str, str] = {}
    for number, mark in enumerate(mark for mark, label in published if _is_image(mark, label, markup)):
        links.setdefault(mark, f"![](images/{prefix}{number}.jpg)\n")
    others = dict.fromkeys(mark for mark, _ in published if mark not in links)
    if (len(links) + len(others)) * len(text) >= _MOST_WORK:
        parts, position = [], 0
        for start, end in places:
            parts += [text[position:start], links.get(text[start:end], "")]
            position = end
        return _without_tex("".join((*parts, text[position:])))
    for mark, link in links.items():
        text = text.replace(mark, link)
    for mark in others:
        text = _without_tex(text.replace(mark, ""))
    return text


def _is_image(mark: str, label: str, markup: Markup) -> bool:
    return _IMAGE_MARK in mark or (markup == "det" and label.strip() == IMAGE_LABEL)


def _without_tex(text: str) -> str:
    if "\\" in text:
        for name, plain in _RELATIONS.items():
            text = text.replace(name, plain)
    return text


def crops(spans: Sequence[Span], width: int, height: int) -> dict[int, tuple[int, int, int, int]]:
    """Number -> (x1, y1, x2, y2) in pixels of every crop of a page of that size.

    All boxes of `image` blocks take a number, those of the first form of markup before those of the second;
    a reversed or empty one has no crop. Crops reach beyond the page as published, within bounds that only
    hostile text meets.
    """
    areas: dict[int, tuple[int, int, int, int]] = {}
    allowance = MAX_CROP_PAGES * width * height
    images = sorted(
        (span for span in spans if span.label == IMAGE_LABEL), key=lambda span: span.markup == "det"
    )
    boxes = [box for span in images for box in span.boxes]
    for number, box in enumerate(boxes[:MAX_CROPS]):
        x1, y1, x2, y2 = pixel_corners(box, width, height)
        area = (x2 - x1) * (y2 - y1)
        inside = 0 < x2 - x1 <= MAX_CROP_SIDE and 0 < y2 - y1 <= MAX_CROP_SIDE
        if inside and area <= allowance:
            allowance -= area
            areas[number] = (x1, y1, x2, y2)
    return areas

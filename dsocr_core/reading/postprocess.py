"""Forms that the published `save_results` makes of a text: its clean form, `result.mmd` and crops."""

from __future__ import annotations

from collections.abc import Sequence

from dsocr_core.models.spec import Markup
from dsocr_core.reading import markup as marks
from dsocr_core.reading.markup import END_MARKER, PAGE, REF_FORM, Form, Span, parse, pixel_corners

IMAGE_LABEL = "image"
_IMAGE_MARK = f"{marks.REF}{IMAGE_LABEL}{marks.REF_END}"
_MOST_WORK = 2_000_000_000  # characters that replacements look at; more than a model can write
MAX_CROPS, MAX_CROP_SIDE, MAX_CROP_PAGES = 1000, 65_500, 16
"""Crops, pixels of their sides (JPEG holds no more), and of all together, in pages."""


def clean_text(text_raw: str) -> str:
    """The text without a trailing end marker, stripped; block markup stays."""
    return text_raw.removesuffix(END_MARKER).strip()


def result_mmd(text_raw: str, form: Form = REF_FORM, blocks: Sequence[Span] | None = None) -> str:
    """The text of `result.mmd`: `image` blocks become links, the markup of other blocks goes.

    Links count blocks while crops count boxes, as published; a repeated block links to its first. What is no
    page of the prompt stays as it is. `blocks` are those of `text_raw`, where they were parsed already.
    """
    text = clean_text(text_raw)
    if form.pages is None:
        before = len(text_raw) - len(text_raw.lstrip())
        spans = parse(text_raw, form) if blocks is None else blocks
        return _without_markup(text, form.markup, spans, before)
    head, *pages = (text[start:end].strip() for start, end in marks.page_places(text))
    for number, page in enumerate(pages[: form.pages]):
        spans = parse(page, Form(form.markup))
        pages[number] = _without_markup(page, form.markup, spans, prefix=f"page_{number}_")
    return "\n".join([*([head] if head else []), *(part for page in pages for part in (PAGE, page))])


def _without_markup(
    text: str, markup: Markup, spans: Sequence[Span], before: int = 0, prefix: str = ""
) -> str:
    """A page's text, which lacks the first `before` characters of that of the spans.

    As published every replacement is made in the whole text that the one before it left.
    """
    places = [(span.start - before, span.end - before) for span in spans]
    published = [(text[start:end], "") for start, end in places] if markup == "ref" else marks.det_marks(text)
    links: dict[str, str] = {}
    images = [
        mark
        for mark, label in published
        if _IMAGE_MARK in mark or (markup == "det" and label.strip() == IMAGE_LABEL)
    ]
    for number, mark in enumerate(images):
        links.setdefault(mark, f"![](images/{prefix}{number}.jpg)\n")
    others = dict.fromkeys(mark for mark, _ in published if mark not in links)
    if (len(links) + len(others)) * len(text) >= _MOST_WORK:
        return text  # no model's: it stays as it is
    for mark, link in links.items():
        text = text.replace(mark, link)
    for mark in others:
        text = text.replace(mark, "").replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
    return text


def crops(spans: Sequence[Span], width: int, height: int) -> dict[int, tuple[int, int, int, int]]:
    """Number -> (x1, y1, x2, y2) in pixels of every crop of a page of that size, beyond it too as published.

    All boxes of `image` blocks take a number, those of the first form first; an empty one has no crop.
    """
    areas: dict[int, tuple[int, int, int, int]] = {}
    allowance = MAX_CROP_PAGES * width * height
    images = [span for span in spans if span.label == IMAGE_LABEL]
    boxes = [box for form in ("ref", "det") for span in images if span.markup == form for box in span.boxes]
    for number, box in enumerate(boxes[:MAX_CROPS]):
        x1, y1, x2, y2 = pixel_corners(box, width, height)
        across, down = x2 - x1, y2 - y1
        if 0 < across <= MAX_CROP_SIDE and 0 < down <= MAX_CROP_SIDE and across * down <= allowance:
            allowance -= across * down
            areas[number] = (x1, y1, x2, y2)
    return areas

"""The markup that a model writes around blocks, scanned in linear time.

    <|ref|>LABEL<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>text of the block
    <|det|>LABEL [x1, y1, x2, y2]<|/det|>text of the block

Spans are found as the published patterns find them, across lines: the first form to the nearest ends; the
second, of a model whose row says so, where it does not lie within one of the first. The published code
evaluates the coordinates; here they are JSON, and what is not four numbers is malformed. Pages of one prompt
begin with `<PAGE>`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any, NamedTuple

from dsocr_core.base.formatting import plural
from dsocr_core.models.spec import Markup

PAGE = "<PAGE>"  # before each page of a prompt with several
REF, REF_END = "<|ref|>", "<|/ref|>"
DET, DET_END = "<|det|>", "<|/det|>"
_MIDDLE = REF_END + DET
END_MARKER = "<｜end▁of▁sentence｜>"  # last in a raw text that the model finished
SCALE = 999  # the model writes coordinates in 0..999 of the page's sides
COORDINATE_LIMIT = 1_000_000  # numbers beyond are no coordinates
Coordinates = tuple[float, float, float, float]


class Form(NamedTuple):
    """Form in which a text is marked up."""

    markup: Markup = "ref"
    pages: int | None = None  # of the prompt, each begun by `<PAGE>`; None for one whose pages nothing begins


REF_FORM = Form()  # of DeepSeek-OCR, of one page


@dataclass(frozen=True)
class Span:
    """One block's markup. `start` and `end` are offsets of the markup in the scanned text."""

    label: str
    boxes: tuple[Coordinates, ...]
    start: int
    end: int
    text: str = ""  # the segment that follows, up to the next span
    malformed: str | None = None  # why something could not be read; boxes before it are still read
    markup: Markup = "ref"
    page: int = 0  # number of its page among those of the prompt


@dataclass(frozen=True)
class Box:
    """One box of a block. Coordinates are pixels of the EXIF-corrected page, x1 <= x2, y1 <= y2."""

    index: int
    label: str
    x1: int
    y1: int
    x2: int
    y2: int
    text: str  # the segment that follows the block in the text
    coordinates: Coordinates  # as written by the model, in 0..999 of the page's sides
    page: int = 0  # number of its page among those of the prompt


def parse(text: str, form: Form = REF_FORM) -> tuple[Span, ...]:
    """All spans of a text in order; what stands on no page of the prompt has no boxes.

    Never raises; linear in the text's length.
    """
    if form.pages is None:
        return _spans(text, form.markup)
    found: list[Span] = []
    for page, (start, end) in enumerate(page_places(text), start=-1):
        reason = "before the first page" if page < 0 else "after the last page"
        for span in _spans(text[start:end], form.markup):
            if not 0 <= page < form.pages:
                span = replace(span, boxes=(), malformed=reason)
            found.append(replace(span, start=start + span.start, end=start + span.end, page=max(0, page)))
    return tuple(found)


def page_places(text: str) -> list[tuple[int, int]]:
    """Start and end of what stands before the first `<PAGE>`, then of each page after its mark."""
    marks = [found.start() for found in re.finditer(PAGE, text)]
    starts = [0, *(mark + len(PAGE) for mark in marks)]
    return list(zip(starts, [*marks, len(text)], strict=True))


def page_texts(text: str, spans: Sequence[Span]) -> list[tuple[str, tuple[Span, ...]]]:
    """Text and spans of what stands before the first `<PAGE>`, then of each page; offsets are in its text."""
    found, starts = [], [span.start for span in spans]
    for start, end in page_places(text):
        own = spans[bisect_left(starts, start) : bisect_left(starts, end)]
        moved = (replace(span, start=span.start - start, end=span.end - start) for span in own)
        found.append((text[start:end], tuple(moved)))
    return found


def page_notes(text: str, form: Form) -> tuple[str, ...]:
    """Sentences on pages that are not those of the prompt; none where each came back once."""
    if form.pages is None:
        return ()
    (start, end), *pages = page_places(text)
    notes = []
    if len(pages) != form.pages:
        notes.append(f"{plural(len(pages), 'page')} came back of {form.pages}")
    if head := text[start:end].removesuffix(END_MARKER).strip():
        notes.append(f"{plural(len(head), 'character')} before the first {PAGE}")
    return tuple(notes)


def _spans(text: str, markup: Markup) -> tuple[Span, ...]:
    found = _ref_rows(text)
    if markup == "det":
        rows = merge(_ref_rows(text, flat=True), _det_rows(text), key=lambda row: row.start)
        found = []
        for row in rows:  # of two that overlap the first form's stays
            if not found or row.start >= found[-1].end:
                found.append(row)
            elif row.markup == "ref":
                found[-1] = row
    ends = [row.start for row in found[1:]] + [len(text)] * bool(found)
    return tuple(replace(row, text=text[row.end : end]) for row, end in zip(found, ends, strict=True))


def det_marks(text: str) -> list[tuple[str, str]]:
    """Markup and label of what both published patterns match in a page's text, the first form first."""
    return [(text[row.start : row.end], row.label) for row in (*_ref_rows(text), *_det_rows(text))]


_LABEL = re.compile(r"\s*+([A-Za-z_][\w-]*+)\s*+\[")
_TAIL = re.compile(rf"\s*+{re.escape(DET_END)}")


def _det_rows(text: str) -> Iterator[Span]:
    """Matches of the second form, as the published pattern finds them from left to right."""
    position, closing, tail = 0, -1, None
    while (start := text.find(DET, position)) >= 0:
        position = start + len(DET)
        if (label := _LABEL.match(text, position)) is None:
            continue
        if closing <= label.end():  # else the same bracket closes this one, and its tail was looked at
            closing = text.find("]", label.end())
            if closing < 0:
                return
            tail = _TAIL.match(text, closing + 1) if closing > label.end() else None
        if tail is not None:
            position = tail.end()
            boxes, reason = parse_coordinates(text[label.end() - 1 : closing + 1], flat=True)
            yield Span(label[1], boxes, start, position, malformed=reason, markup="det")


def _ref_rows(text: str, flat: bool = False) -> list[Span]:
    """Matches of the first form."""
    found: list[Span] = []
    position = 0
    while (start := text.find(REF, position)) >= 0:
        middle = text.find(_MIDDLE, start + len(REF))
        end = text.find(DET_END, middle + len(_MIDDLE)) if middle >= 0 else -1
        if end < 0:
            break  # nothing further can match either
        label = text[start + len(REF) : middle]
        boxes, reason = parse_coordinates(text[middle + len(_MIDDLE) : end], flat)
        if reason is None and REF in label:
            reason = f"{REF} inside a label"
        position = end + len(DET_END)
        found.append(Span(label, boxes, start, position, malformed=reason))
    return found


def block_text(span: Span) -> str:
    """The text of a block for people: what follows its markup, without the end marker, stripped."""
    return span.text.removesuffix(END_MARKER).strip()


def pixel_corners(box: Coordinates, width: int, height: int) -> tuple[int, int, int, int]:
    """(x1, y1, x2, y2) in pixels as the published code computes them: truncated, not clipped."""
    x1, y1, x2, y2 = (int(value / SCALE * side) for value, side in zip(box, (width, height) * 2, strict=True))
    return x1, y1, x2, y2


def page_boxes(spans: Sequence[Span], *sizes: tuple[int, int]) -> tuple[Box, ...]:
    """Every box in pixels of its page of those `sizes`, in order; reversed corners are swapped."""
    boxes: list[Box] = []
    for span in spans:
        text = block_text(span)
        for coordinates in span.boxes:
            x1, y1, x2, y2 = pixel_corners(coordinates, *sizes[span.page])
            corners = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
            boxes.append(Box(len(boxes), span.label, *corners, text, coordinates, span.page))
    return tuple(boxes)


def parse_coordinates(text: str, flat: bool = False) -> tuple[tuple[Coordinates, ...], str | None]:
    """The boxes in a list of [x1, y1, x2, y2], up to the first that is none, and what was wrong.

    With `flat` a list that begins with a number is one box.
    """
    try:
        rows: Any = _decoder.decode(text)
    except (ValueError, KeyError, RecursionError):
        return (), "coordinates are not a list of numbers"
    if not isinstance(rows, list):
        return (), "coordinates are not a list"
    if flat and rows and not isinstance(rows[0], list):
        rows = [rows]
    boxes: list[Coordinates] = []
    for number, row in enumerate(rows, start=1):
        if not (isinstance(row, list) and [type(value) in (int, float) for value in row] == [True] * 4):
            return tuple(boxes), f"box {number} is not four numbers"
        if not all(abs(value) <= COORDINATE_LIMIT for value in row):
            return tuple(boxes), f"box {number} lies out of all bounds"
        x1, y1, x2, y2 = map(float, row)
        boxes.append((x1, y1, x2, y2))
    return tuple(boxes), None if boxes else "no coordinates"


_decoder = json.JSONDecoder(parse_constant=dict[str, float]().__getitem__)  # NaN is a KeyError

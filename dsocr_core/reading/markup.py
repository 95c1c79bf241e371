"""The markup that the model writes around blocks, scanned strictly and in linear time.

    <|ref|>LABEL<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>text of the block

Spans are found as the published pattern finds them: from the first `<|ref|>` to the nearest
`<|/ref|><|det|>` and on to the nearest `<|/det|>`, across lines. The published code then evaluates the
coordinates; here they are read as JSON, and whatever is not four numbers is left as malformed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REF, REF_END = "<|ref|>", "<|/ref|>"
DET, DET_END = "<|det|>", "<|/det|>"
END_MARKER = "<｜end▁of▁sentence｜>"
"""The end token's text, last in a raw text that the model finished."""

_MIDDLE = REF_END + DET

SCALE = 999
"""The model writes coordinates in 0..999 of the page's sides."""

COORDINATE_LIMIT = 1_000_000
"""Numbers beyond are no coordinates; smaller ones outside of the page stay as written."""

Coordinates = tuple[float, float, float, float]
_Row = tuple[int, int, str, tuple[Coordinates, ...], str | None, bool]
"""start, end, label, boxes, malformed, closed: a span before the text that follows it is read."""


@dataclass(frozen=True)
class Span:
    """One block's markup. `start` and `end` are offsets of the markup in the scanned text."""

    label: str
    boxes: tuple[Coordinates, ...]
    start: int
    end: int
    text: str
    """The segment that follows, up to the next span."""
    malformed: str | None = None
    """Why something of the span could not be read; boxes before it are still read."""
    closed: bool = True
    """False for markup that the published pattern does not match and leaves in the text."""


@dataclass(frozen=True)
class Box:
    """One box of a block. Coordinates are pixels of the EXIF-corrected page, x1 <= x2, y1 <= y2."""

    index: int
    label: str
    x1: int
    y1: int
    x2: int
    y2: int
    text: str
    """The segment that follows the block in the text."""
    coordinates: tuple[float, float, float, float]
    """As written by the model, in 0..999 of the page's sides."""


def parse(text: str) -> tuple[Span, ...]:
    """All spans of a text in order. Never raises; linear in the text's length."""
    found: list[_Row] = []
    position = 0
    while (start := text.find(REF, position)) >= 0:
        middle = text.find(_MIDDLE, start + len(REF))
        end = text.find(DET_END, middle + len(_MIDDLE)) if middle >= 0 else -1
        if end < 0:
            break  # nothing further can match either
        label = text[start + len(REF) : middle]
        boxes, reason = parse_coordinates(text[middle + len(_MIDDLE) : end])
        if reason is None and REF in label:
            reason = f"{REF} inside a label"
        position = end + len(DET_END)
        found.append((start, position, label, boxes, reason, True))
    found += _unclosed(text, position)
    ends = [span[0] for span in found[1:]] + [len(text)] * bool(found)
    return tuple(
        Span(label, boxes, start, end, text[end:until], reason, closed)
        for (start, end, label, boxes, reason, closed), until in zip(found, ends, strict=True)
    )


def block_text(span: Span) -> str:
    """The text of a block for people: what follows its markup, without the end marker, stripped."""
    return span.text.removesuffix(END_MARKER).strip()


def pixel_corners(box: Coordinates, width: int, height: int) -> tuple[int, int, int, int]:
    """(x1, y1, x2, y2) in pixels as the published code computes them: truncated, not clipped."""
    x1, y1, x2, y2 = box
    return (
        int(x1 / SCALE * width),
        int(y1 / SCALE * height),
        int(x2 / SCALE * width),
        int(y2 / SCALE * height),
    )


def page_boxes(spans: Sequence[Span], width: int, height: int) -> tuple[Box, ...]:
    """Every box of a page of that size in pixels, in order of appearance; reversed corners are swapped."""
    boxes: list[Box] = []
    for span in spans:
        text = block_text(span)
        for coordinates in span.boxes:
            x1, y1, x2, y2 = pixel_corners(coordinates, width, height)
            boxes.append(
                Box(
                    index=len(boxes),
                    label=span.label,
                    x1=min(x1, x2),
                    y1=min(y1, y2),
                    x2=max(x1, x2),
                    y2=max(y1, y2),
                    text=text,
                    coordinates=coordinates,
                )
            )
    return tuple(boxes)


def _unclosed(text: str, position: int) -> list[_Row]:
    """Find what begins with `<|ref|>` after the last whole span, each up to the next such beginning."""
    spans: list[_Row] = []
    start = text.find(REF, position)
    while start >= 0:
        following = text.find(REF, start + len(REF))
        until = following if following >= 0 else len(text)
        label_start = start + len(REF)
        label_end = text.find(REF_END, label_start, until)
        if label_end < 0:
            end, label, reason = label_start, "", f"no {REF_END}"
        else:
            end, label, reason = label_end + len(REF_END), text[label_start:label_end], f"no {DET_END}"
            if text.startswith(DET, end):
                end = until
            else:
                reason = f"no {DET} right after {REF_END}"
        spans.append((start, end, label, (), reason, False))
        start = following
    return spans


def parse_coordinates(text: str) -> tuple[tuple[Coordinates, ...], str | None]:
    """The boxes in a list of [x1, y1, x2, y2], up to the first that is none, and what was wrong."""
    try:
        rows: Any = _decoder.decode(text)
    except (ValueError, RecursionError):
        return (), "coordinates are not a list of numbers"
    if not isinstance(rows, list):
        return (), "coordinates are not a list"
    boxes: list[Coordinates] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != 4:
            return tuple(boxes), f"box {number} is not four numbers"
        if not all(type(value) in (int, float) for value in row):
            return tuple(boxes), f"box {number} is not four numbers"
        if not all(abs(value) <= COORDINATE_LIMIT for value in row):
            return tuple(boxes), f"box {number} lies out of all bounds"
        x1, y1, x2, y2 = (float(value) for value in row)
        boxes.append((x1, y1, x2, y2))
    return tuple(boxes), None if boxes else "no coordinates"


def _refuse(constant: str) -> float:
    raise ValueError(constant)


_decoder = json.JSONDecoder(parse_constant=_refuse)
"""Made once: `json.loads` with an option makes one for every call."""

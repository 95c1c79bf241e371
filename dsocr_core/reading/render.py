"""Boxes drawn on the page, with one stable colour a label, and crops of pictures."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from hashlib import sha256

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.reading.markup import Box

Colour = tuple[int, int, int]

_KNOWN: dict[str, Colour] = {
    "title": (213, 94, 0),
    "sub_title": (230, 159, 0),
    "text": (0, 114, 178),
    "image": (0, 158, 115),
    "image_caption": (86, 180, 233),
    "figure": (0, 158, 115),
    "table": (204, 121, 167),
    "table_caption": (160, 90, 130),
    "equation": (120, 94, 240),
    "formula": (120, 94, 240),
}
"""The labels that the published model writes most, in colours that stay apart for every eye."""

TITLE_OUTLINE, OUTLINE = 4, 2
FILL_ALPHA = 20
LABEL_RISE = 15
"""Pixels from a box's top edge up to its label, as published."""

MAX_DRAWN = 2000
"""Boxes that are drawn; a page has a hundred, a hostile text may have any number."""

MAX_FILLED_PAGES = 16
"""All fills together cover at most this many times the page; later boxes have an outline only."""

_MARGIN = 16
"""Pixels around the page within which far corners are moved, out of sight."""


def label_colour(label: str) -> Colour:
    """The colour of a label: always the same one, on every page and in every run."""
    if label in _KNOWN:
        return _KNOWN[label]
    hue = sha256(label.encode(errors="replace")).digest()[0] / 256
    red, green, blue = colorsys.hls_to_rgb(hue, 0.40, 0.65)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw_boxes(page: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """A copy of the RGB page with its boxes outlined, lightly filled and labelled; MAX_DRAWN at most."""
    picture = page.copy()
    pen = ImageDraw.Draw(picture, "RGBA")
    font = ImageFont.load_default()
    allowance = MAX_FILLED_PAGES * page.width * page.height
    for box in boxes[:MAX_DRAWN]:
        corners, colour = _near_page(box, page.size), label_colour(box.label)
        width = TITLE_OUTLINE if box.label == "title" else OUTLINE
        allowance -= (corners[2] - corners[0]) * (corners[3] - corners[1])
        fill = (*colour, FILL_ALPHA) if allowance >= 0 else None
        pen.rectangle(corners, fill=fill, outline=colour, width=width)
        origin = (corners[0], max(0, corners[1] - LABEL_RISE))
        label = _drawable(box.label)
        pen.rectangle(pen.textbbox(origin, label, font=font), fill=(255, 255, 255, 30))
        pen.text(origin, label, font=font, fill=colour)
    return picture


def _near_page(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The corners, far ones just outside of the page: Pillow walks every pixel of a line."""
    width, height = size
    x1, x2 = (min(max(x, -_MARGIN), width + _MARGIN) for x in (box.x1, box.x2))
    y1, y2 = (min(max(y, -_MARGIN), height + _MARGIN) for y in (box.y1, box.y2))
    return x1, y1, x2, y2


def _drawable(label: str) -> str:
    """A label on one line, in characters that every font of Pillow takes."""
    return " ".join(label[:40].split()).encode("latin-1", "replace").decode("latin-1")

"""Pictures of pages, with the boxes of their texts drawn on them.

Two measures of small grey copies. The correlation sorts out other layouts. What decides is the difference
place by place beside the drawn lines and labels: a form with one other word in it is another page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from dsocr_core.reading.markup import SCALE, parse

SIDE, BLOCK = 400, 10
"""Pixels of a copy, and of the squares in which differences are looked at."""
LIKE = 0.7
"""Least correlation of a page with itself under boxes: 0.84 was the least of 30 dense and sparse pages."""
SAME = 0.5
"""By how much of its contrast a square may differ. Of 17 pages, scanned at 144 dots per inch and at 150
after JPEG, the most was 0.42; of forms that differ in some numbers the least was 0.61."""
_FAINT = 12.0
"""Grey levels, of 255, that count as contrast everywhere: what JPEG leaves on white."""
_COARSE = 50
_LINE, _LABEL_HEIGHT, _LABEL_CHARACTER = 3, 20, 9
"""Pixels of a copy around a line; pixels of the picture above a box and along each letter of its label."""
_LEAST_SEEN = 0.5
"""Share of a square that must lie beside lines and labels."""

Grey = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Copy:
    """A page as it is compared: a small grey copy, (SIDE, SIDE)."""

    grey: Grey
    size: tuple[int, int]

    @staticmethod
    def of(image: Image.Image) -> Copy:
        small = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
        return Copy(np.asarray(small, dtype=np.float32), image.size)

    def correlation(self, other: Copy) -> float:
        """-1..1 of the coarse layouts; 1 of two blank pages and 0 of a blank one with another."""
        a, b = _centred(self.grey), _centred(other.grey)
        lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
        if min(lengths) < _COARSE:
            return float(max(lengths) < _COARSE)
        return float((a * b).sum()) / (lengths[0] * lengths[1])


def _centred(grey: Grey) -> Grey:
    step = SIDE // _COARSE
    coarse: Grey = grey.reshape(_COARSE, step, _COARSE, step).mean((1, 3))
    centred: Grey = coarse - coarse.mean()
    return centred


def is_of(page: Copy, drawn: Copy, text: str) -> bool:
    """Tell whether `drawn`, of the size that its boxes were drawn at, is the page with the boxes of
    `text`.
    """
    if page.correlation(drawn) < LIKE:
        return False
    touched = _squares(_touched(text, drawn.size))
    seen = (~touched).mean(1) >= _LEAST_SEEN
    if not seen.any():
        return False

    def contrast(grey: Grey) -> Grey:
        """Mean distance from the median, per square: a thin fill over the whole square is none."""
        squares = np.where(touched, np.nan, _squares(grey))[seen]
        found: Grey = np.nanmean(np.abs(squares - np.nanmedian(squares, axis=1, keepdims=True)), axis=1)
        return found

    usual = (contrast(page.grey) + contrast(drawn.grey)) / 2
    return bool((contrast(drawn.grey - page.grey) <= SAME * (_FAINT + usual)).all())


def _squares(copy: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy's pixels by squares, (squares, BLOCK * BLOCK)."""
    count = SIDE // BLOCK
    return copy.reshape(count, BLOCK, count, BLOCK).swapaxes(1, 2).reshape(-1, BLOCK * BLOCK)


def _touched(text: str, size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Mask where lines and labels of the boxes may be, (SIDE, SIDE)."""
    touched = np.zeros((SIDE, SIDE), dtype=bool)
    width, height = size
    label_height = int(_LABEL_HEIGHT / height * SIDE) + 2
    for span in parse(text):
        label_width = int((len(span.label) + 1) * _LABEL_CHARACTER / width * SIDE) + 2
        for box in span.boxes:
            left, top, right, bottom = (int(min(max(value, 0), SCALE) / SCALE * SIDE) for value in box)
            rows = slice(max(0, top - _LINE), bottom + _LINE + 1)
            columns = slice(max(0, left - _LINE), right + _LINE + 1)
            for line in (left, right):
                touched[rows, max(0, line - _LINE) : line + _LINE + 1] = True
            for line in (top, bottom):
                touched[max(0, line - _LINE) : line + _LINE + 1, columns] = True
            above = max(0, top - label_height)
            touched[above : above + label_height + 2, left : left + label_width] = True
    return touched

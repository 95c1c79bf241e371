"""Padding in whole numbers: every place is Pillow's. Windows and weights are held to it by tests/engine."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image, ImageOps

from dsocr_core.page.resizing import padded_area


def test_a_thousand_paddings_are_pillows_own() -> None:
    sizes = random.Random(24)
    for _ in range(1000):
        before, side = (sizes.randint(1, 120), sizes.randint(1, 120)), sizes.randint(1, 90)
        view = np.asarray(ImageOps.pad(Image.new("L", before, 255), (side, side)))
        (width, height), (left, top) = padded_area(before, side)
        expected = np.zeros((side, side), np.uint8)
        expected[top : top + height, left : left + width] = 255
        assert np.array_equal(view, expected), (before, side)

"""Windows, weights and padding in whole numbers: every byte is Pillow's."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image, ImageOps

from dsocr_core.page.resizing import PRECISION_BITS, padded_area, windows


def check(before: int, after: int, seed: int) -> None:
    """A row resized by its windows, in the integers that the module names."""
    values = np.random.default_rng(seed).integers(0, 256, before, np.uint8)
    pixels, weights = windows(before, after)
    sums = (values.astype(np.int64)[pixels] * weights).sum(axis=1) + (1 << (PRECISION_BITS - 1))
    assert np.abs(sums).max() < 2**31, "32 bits are enough"
    expected = np.asarray(Image.fromarray(values[None]).resize((after, 1)))[0]
    assert np.array_equal(np.clip(sums >> PRECISION_BITS, 0, 255), expected), (before, after)


def test_a_thousand_lengths_are_pillows_own() -> None:
    lengths = random.Random(31)
    for page in ((1280, 1024), (1654, 1280), (2339, 1920), (9000, 640), (640, 1280)):
        check(*page, 1)
    for number in range(1000):
        check(lengths.randint(1, 400), lengths.randint(1, 400), number)


def test_a_thousand_paddings_are_pillows_own() -> None:
    sizes = random.Random(24)
    for _ in range(1000):
        before, side = (sizes.randint(1, 120), sizes.randint(1, 120)), sizes.randint(1, 90)
        view = np.asarray(ImageOps.pad(Image.new("L", before, 255), (side, side)))
        (width, height), (left, top) = padded_area(before, side)
        expected = np.zeros((side, side), np.uint8)
        expected[top : top + height, left : left + width] = 255
        assert np.array_equal(view, expected), (before, side)

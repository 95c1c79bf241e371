"""Windows and weights in whole numbers: every byte is Pillow's."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image

from dsocr_core.page.resampling import PRECISION_BITS, windows


def row(before: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, before, np.uint8)


def along(values: np.ndarray, after: int) -> np.ndarray:
    """A row resized by its windows, in the integers that the module names."""
    pixels, weights = windows(len(values), after)
    sums = (values.astype(np.int64)[pixels] * weights).sum(axis=1) + (1 << (PRECISION_BITS - 1))
    assert np.abs(sums).max() < 2**31, "32 bits are enough"
    return np.clip(sums >> PRECISION_BITS, 0, 255).astype(np.uint8)


def test_a_thousand_lengths_are_pillows_own() -> None:
    lengths = random.Random(31)
    for number in range(1000):
        before, after = lengths.randint(1, 400), lengths.randint(1, 400)
        values = row(before, number)
        expected = np.asarray(Image.fromarray(values[None]).resize((after, 1)))[0]
        assert np.array_equal(along(values, after), expected), (before, after)


@pytest.mark.parametrize(
    ("before", "after"), [(1280, 1024), (1654, 1280), (2339, 1920), (9000, 640), (640, 1280)]
)
def test_lengths_of_pages_are_pillows_own(before: int, after: int) -> None:
    for values in (row(before, 1), np.tile(np.array([0, 255], np.uint8), before)[:before]):
        expected = np.asarray(Image.fromarray(values[None]).resize((after, 1)))[0]
        assert np.array_equal(along(values, after), expected)


def test_weights_of_a_window_sum_to_one() -> None:
    """To 1 within the rounding of each weight: half a unit of the 22nd place."""
    pixels, weights = windows(1000, 333)
    assert pixels.shape == weights.shape == (333, weights.shape[1])
    assert np.abs(weights.sum(axis=1) - (1 << PRECISION_BITS)).max() <= weights.shape[1] / 2
    assert pixels.min() == 0 and pixels.max() == 999

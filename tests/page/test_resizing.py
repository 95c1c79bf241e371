"""Bands on threads against Pillow's own resize and padding: every byte."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image, ImageOps

import dsocr_core.page.resizing as resizing
from dsocr_core.page.resizing import padded, resized

GREY = (127, 127, 127)
COUNT = 1000


def page(width: int, height: int, seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture
def small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands of a few pixels: what a page does at full size costs a thousandth."""
    monkeypatch.setattr(resizing, "BAND_PIXELS", 1)


@pytest.mark.usefixtures("small_bands")
def test_a_thousand_sizes_are_pillows_own() -> None:
    sizes = random.Random(23)
    for number in range(COUNT):
        before = sizes.randint(1, 90), sizes.randint(1, 90)
        after = sizes.randint(1, 90), sizes.randint(1, 90)
        if number % 10 == 0:
            after = after[0], before[1]  # one pass alone
        image, bands = page(*before, number), sizes.randint(1, 7)
        expected = np.asarray(image.resize(after))
        assert np.array_equal(resized(image, after, bands), expected), (before, after, bands)


@pytest.mark.usefixtures("small_bands")
def test_a_thousand_paddings_are_pillows_own() -> None:
    sizes = random.Random(24)
    for number in range(COUNT):
        before, side = (sizes.randint(1, 120), sizes.randint(1, 120)), sizes.randint(1, 90)
        if number % 10 == 0:
            before = before[0], before[0]
        image, bands = page(*before, number), sizes.randint(1, 4)
        expected = np.asarray(ImageOps.pad(image, (side, side), color=GREY))
        assert np.array_equal(padded(image, side, GREY, bands), expected), (before, side, bands)


@pytest.mark.parametrize("size", [(1241, 1754), (1280, 720)])
def test_pages_at_full_size(size: tuple[int, int]) -> None:
    image = page(*size, 1)
    assert np.array_equal(resized(image, (1280, 1920), 3), np.asarray(image.resize((1280, 1920))))
    expected = np.asarray(ImageOps.pad(image, (1024, 1024), color=GREY))
    assert np.array_equal(padded(image, 1024, GREY, 2), expected)


def test_the_sizes_compared_once_are_of_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pillow that always resizes along the width first is found out, and its own resize used."""
    assert resizing.order_holds.__wrapped__()
    own = Image.Image.resize

    def width_first(image: Image.Image, size: tuple[int, int]) -> Image.Image:
        return own(own(image, (size[0], image.height)), size)

    def height_first(image: Image.Image, size: tuple[int, int]) -> Image.Image:
        return own(own(image, (image.width, size[1])), size)

    image = page(1241, 1754, 2)
    for order in (width_first, height_first):
        monkeypatch.setattr(Image.Image, "resize", order)
        assert not resizing.order_holds.__wrapped__()
        monkeypatch.setattr(resizing, "order_holds", lambda: False)
        assert np.array_equal(resized(image, (900, 700), 4), np.asarray(order(image, (900, 700))))
        monkeypatch.undo()


def test_a_side_that_rounds_to_no_pixel_is_all_padding() -> None:
    assert (padded(page(1, 3000, 0), 640, GREY) == 127).all()
    assert (padded(page(3000, 1, 0), 640, GREY, 4) == 127).all()

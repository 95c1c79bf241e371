"""Pillow's resize on several cores, bit for bit.

Pillow resizes along one side after the other, and rounds to bytes in between. A row knows of no other while
the width changes, nor a column while the height does. So each pass is cut into bands, and Pillow itself
resizes every band, on a thread of its own: it does not hold the interpreter meanwhile.

Which side comes first is Pillow's own choice, and another version may choose otherwise: a few small images
are compared once, and where they differ nothing is cut.

Letters: H rows and W columns of the result, S side of a square view.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]
Size = tuple[int, int]
"""Width and height in pixels."""

MOST_BANDS = min(8, os.cpu_count() or 1)
BAND_PIXELS = 256 * 256
"""A band of fewer is not worth a thread."""


def resized(image: Image.Image, size: Size, bands: int = 1) -> Bytes:
    """`image.resize(size)` of an RGB image, (H, W, 3): bicubic, on as many threads as `bands`."""
    if image.size == size:
        return np.asarray(image)
    most = max(image.width, size[0]) * max(image.height, size[1])
    bands = min(bands, most // BAND_PIXELS)
    if bands < 2 or not order_holds():
        return np.asarray(image.resize(size))
    return np.asarray(in_bands(image, size, bands))


def padded(image: Image.Image, side: int, colour: tuple[int, int, int], bands: int = 1) -> Bytes:
    """`ImageOps.pad(image, (side, side), color=colour)` of an RGB image, (S, S, 3).

    An image so narrow that its shorter side rounds to no pixel is all padding.
    """
    (width, height), (left, top) = padded_area(image.size, side)
    if (width, height) == (side, side):
        return resized(image, (side, side), bands)
    out = np.empty((side, side, 3), np.uint8)
    out[:] = colour
    if min(width, height) > 0:
        out[top : top + height, left : left + width] = resized(image, (width, height), bands)
    return out


def padded_area(size: Size, side: int) -> tuple[Size, Size]:
    """The size of an image within a square of that side, and where it lies: (left, top)."""
    longer = max(size)
    # Division first, as Pillow does it: the other order may round to another pixel.
    width, height = (side if length == longer else round(length / longer * side) for length in size)
    return (width, height), (round((side - width) * 0.5), round((side - height) * 0.5))


def height_first(before: Size, after: Size) -> bool:
    """Tell whether Pillow resizes the height first, where `order_holds`."""
    (width, height), (new_width, new_height) = before, after
    return new_height < height and 2 * (width - new_width) < height - new_height


def in_bands(image: Image.Image, size: Size, bands: int) -> Image.Image:
    """The resized image, each pass on that many threads. Right where `order_holds`."""
    between = (image.width, size[1]) if height_first(image.size, size) else (size[0], image.height)
    with ThreadPoolExecutor(bands) as threads:
        for target in (between, size):
            if target != image.size:
                image = _one_pass(image, target, bands, threads)
    return image


def _one_pass(image: Image.Image, size: Size, bands: int, threads: ThreadPoolExecutor) -> Image.Image:
    """A resize that changes the width or the height alone."""
    (width, height), out = image.size, Image.new("RGB", size)
    by_rows = height == size[1]
    length = height if by_rows else width
    edges = sorted({length * number // bands for number in range(bands + 1)})

    def band(start: int, end: int) -> None:
        if by_rows:
            out.paste(image.crop((0, start, width, end)).resize((size[0], end - start)), (0, start))
        else:
            out.paste(image.crop((start, 0, end, height)).resize((end - start, size[1])), (start, 0))

    list(threads.map(band, edges[:-1], edges[1:]))  # raises what a band raised
    return out


_ORDERS: tuple[tuple[Size, Size], ...] = (
    ((24, 24), (12, 12)), ((24, 24), (18, 11)), ((24, 24), (17, 11)), ((24, 24), (30, 23)),
    ((24, 24), (30, 30)), ((24, 48), (12, 16)), ((48, 24), (12, 6)), ((12, 36), (9, 29)), ((36, 12), (35, 9)),
    ((30, 20), (20, 30)),
)  # fmt: skip
"""Sizes before and after, of both orders and near their border."""


@functools.cache
def order_holds() -> bool:
    """Tell whether this Pillow chooses the first side as `height_first` does."""
    noise = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    pages = [(Image.fromarray(noise[: size[1], : size[0]]), after) for size, after in _ORDERS]
    return all(in_bands(page, size, 1).tobytes() == page.resize(size).tobytes() for page, size in pages)

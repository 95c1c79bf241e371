"""Pillow's bicubic resize and padding as arithmetic, for devices that do the same sums (engine/views.py).

Pillow resizes one side after the other. A byte of the result is a weighted sum over a window of the side, in
integers: the weights are rounded to 22 binary places, a half is added, and the sum is shifted back and kept
within 0 to 255. So any device that adds 32-bit integers gives the same bytes.
Read from the documentation and the behaviour of Pillow's `Resample.c`; held to Pillow by tests.

Letters: N length of the result, K weights of a window.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Size = tuple[int, int]
"""Width and height in pixels."""
PRECISION_BITS = 22
"""Fraction bits of a weight: of 32 bits, 8 are for the byte and 2 are spare for sums."""
_SUPPORT = 2.0
"""Half width of the bicubic kernel in source pixels, where the image is not made smaller."""


def padded_area(size: Size, side: int) -> tuple[Size, Size]:
    """Size of an image that is fitted into a square of that side, and its place: (left, top)."""
    longer = max(size)
    # Division first, as in Pillow: the other order may round to another pixel.
    width, height = (side if length == longer else round(length / longer * side) for length in size)
    return (width, height), (round((side - width) * 0.5), round((side - height) * 0.5))


def height_first(before: Size, after: Size) -> bool:
    """Tell whether Pillow 13 resizes the height first. Other versions may choose differently."""
    (width, height), (new_width, new_height) = before, after
    return new_height < height and 2 * (width - new_width) < height - new_height


def windows(before: int, after: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Source pixels and weights of each byte of the result: (N, K) both.

    A window that reaches beyond the side is filled up with weight 0 at its last pixel.
    """
    scale = before / after
    stretch = max(scale, 1.0)
    support = _SUPPORT * stretch
    centres = (np.arange(after) + 0.5) * scale
    # Truncated like a conversion to an integer; a first pixel below 0 is 0.
    first = np.maximum(np.trunc(centres - support + 0.5).astype(np.int64), 0)
    beyond = np.minimum(np.trunc(centres + support + 0.5).astype(np.int64), before)
    steps = np.arange(math.ceil(support) * 2 + 1)
    pixels = first[:, None] + steps  # (N, K)
    weights = _bicubic((pixels - centres[:, None] + 0.5) * (1.0 / stretch))
    weights[pixels >= beyond[:, None]] = 0.0
    # In this order: another order of the sum rounds differently.
    total = np.zeros(after)
    for step in steps:
        total += weights[:, step]
    scaled = weights / np.where(total == 0.0, 1.0, total)[:, None] * (1 << PRECISION_BITS)
    whole = np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int32)
    used = int(np.max(beyond - first))
    return np.minimum(pixels[:, :used], before - 1), whole[:, :used]


def _bicubic(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The cubic convolution kernel with a = -0.5."""
    x = np.abs(distance)
    near = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))

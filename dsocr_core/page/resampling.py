"""Pillow's bicubic resize of bytes along one side: windows and whole-number weights.

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

PRECISION_BITS = 22
"""Binary places of a weight: 8 bits of a byte and 2 of room for sums are left of 32."""
_SUPPORT = 2.0
"""Pixels of the source on each side that a bicubic window takes, where nothing shrinks."""


def _bicubic(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The cubic convolution kernel with a = -0.5."""
    x = np.abs(distance)
    near = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def windows(before: int, after: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The pixels that each byte of the result is made of, and their weights: both (N, K).

    Windows that reach beyond the side are filled up with weight 0 at its last pixel.
    """
    scale = before / after
    stretch = max(scale, 1.0)
    support = _SUPPORT * stretch
    most = math.ceil(support) * 2 + 1
    centres = (np.arange(after) + 0.5) * scale
    # Truncation, as of a conversion to an integer: a first pixel below 0 is 0.
    first = np.maximum(np.trunc(centres - support + 0.5).astype(np.int64), 0)
    beyond = np.minimum(np.trunc(centres + support + 0.5).astype(np.int64), before)
    steps = np.arange(most)
    pixels = first[:, None] + steps  # (N, K)
    weights = _bicubic((pixels - centres[:, None] + 0.5) * (1.0 / stretch))
    weights[pixels >= beyond[:, None]] = 0.0
    # One after the other: a sum in another order rounds otherwise.
    total = np.zeros(after)
    for step in steps:
        total += weights[:, step]
    weights = np.where(total[:, None] != 0.0, weights / np.where(total == 0.0, 1.0, total)[:, None], weights)
    scaled = weights * (1 << PRECISION_BITS)
    whole = np.trunc(np.where(weights < 0, scaled - 0.5, scaled + 0.5)).astype(np.int32)
    used = int(np.max(beyond - first))
    return np.minimum(pixels[:, :used], before - 1), whole[:, :used]

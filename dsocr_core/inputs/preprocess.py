"""Page image -> the views the model sees, as bytes. No torch: the engine makes tensors of them.

Letters: S side of the global view in pixels, T tiles, H rows, W columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dsocr_core.inputs.tiling import page_grid, tile_count
from dsocr_core.resolution import TILE_SIZE, Preset

PADDING = (127, 127, 127)

NORMALISED: NDArray[np.float32] = (
    np.arange(256, dtype=np.float32) / np.float32(255) - np.float32(0.5)
) / np.float32(0.5)
"""The value of each pixel byte after normalisation, in float32 like the published transform: (256,)"""


@dataclass(frozen=True)
class PreparedImage:
    """A page's views. `tiles` is (T, 640, 640, 3) with T = 0 when the grid is (1, 1)."""

    global_view: NDArray[np.uint8]
    """(S, S, 3)"""
    tiles: NDArray[np.uint8]
    grid: tuple[int, int]
    """(columns, rows)"""
    image_size: tuple[int, int]
    """(width, height) of the page in pixels."""


def prepare(image: Image.Image, preset: Preset) -> PreparedImage:
    """The views of an RGB page under a preset, resampled as the published code does (bicubic)."""
    grid = page_grid(preset, image.width, image.height)
    tiles = _tiles(image, grid) if tile_count(grid) else np.empty((0, TILE_SIZE, TILE_SIZE, 3), np.uint8)
    size = preset.view_size
    # Without crops small views are first squeezed into the square; larger ones keep their aspect.
    squeezed = not preset.crop_mode and preset.image_size <= TILE_SIZE
    view = image.resize((size, size)) if squeezed else image
    view = ImageOps.pad(view, (size, size), color=PADDING)
    return PreparedImage(np.asarray(view), tiles, grid, (image.width, image.height))


def _tiles(image: Image.Image, grid: tuple[int, int]) -> NDArray[np.uint8]:
    """The page stretched over the grid and cut row by row: (T, 640, 640, 3)"""
    columns, rows = grid
    stretched = np.asarray(image.resize((TILE_SIZE * columns, TILE_SIZE * rows)))  # (H, W, 3)
    cut = stretched.reshape(rows, TILE_SIZE, columns, TILE_SIZE, 3).swapaxes(1, 2)
    return np.ascontiguousarray(cut.reshape(rows * columns, TILE_SIZE, TILE_SIZE, 3))


def normalised(views: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(..., H, W, 3) bytes -> (..., 3, H, W) in -1..1"""
    return np.moveaxis(NORMALISED[views], -1, -3)


def bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Finite float32 values rounded to bf16, to nearest with ties to even, as their 16 bits."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


_NORMALISED_BITS = bfloat16_bits(NORMALISED).astype("<u2")


def tensor_sha256(views: NDArray[np.uint8] | None, shape: Sequence[int] = ()) -> str:
    """SHA-256 of the bf16 bytes of the tensor a road feeds its model, without making the tensor.

    `views` is (V, H, W, 3) for a tensor of (V, 3, H, W); None means zeros of `shape`.
    """
    if views is None:
        return hashlib.sha256(np.zeros(tuple(shape), "<u2").data).hexdigest()
    bits = _NORMALISED_BITS[np.moveaxis(views, -1, -3)]
    return hashlib.sha256(np.ascontiguousarray(bits).data).hexdigest()

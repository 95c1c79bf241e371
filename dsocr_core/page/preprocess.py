"""Pixels of a page for the model, and their hashes, without torch.

Pixels stay bytes until they are on the device: normalisation is a table of 256 values. Letters: T tiles, S
side of the global view in pixels, H and W sides of any view.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.resolution import Preset
from dsocr_core.page.tiling import NO_TILES, Grid, page_grid

Bytes = npt.NDArray[np.uint8]

PAD_COLOUR = (127, 127, 127)


_HALF = np.float32(0.5)
NORMALISED: npt.NDArray[np.float32] = (np.arange(256, dtype=np.float32) / np.float32(255) - _HALF) / _HALF
"""Normalised value of each byte, -1 to 1, by the published float32 operations: (256,)."""
_BITS = NORMALISED.view(np.uint32)
_NORMALISED_BFLOAT16 = ((_BITS + 0x7FFF + ((_BITS >> 16) & 1)) >> 16).astype("<u2")
"""NORMALISED rounded to bf16 (nearest, ties to even) as 16-bit integers."""


@dataclass(frozen=True)
class PreparedImage:
    """Views of a page as bytes (H, W, 3). `image_size` is the page's (width, height) in pixels."""

    global_view: Bytes  # (S, S, 3), or (I, S, S, 3) of several images of one prompt
    tiles: Bytes  # (T, 640, 640, 3) or of another tile size; T = 0 when the page is not cut; row by row
    grid: Grid
    image_size: tuple[int, int]
    more_sizes: tuple[tuple[int, int], ...] = ()
    """Sizes of the images after the first, where several stand in one prompt."""


def prepare(image: Image.Image, preset: Preset) -> PreparedImage:
    """Cut and pad an RGB page as the published `infer` does under that preset.

    A page so narrow that its shorter side rounds to no pixel has a grey global view, as published.
    """
    grid, side = page_grid(*image.size, preset), (preset.view_size, preset.view_size)
    tiles = _tiles(image, grid, preset.tile_size)  # before the view: its memory is reused, which saves 10 ms
    view = _resized(image, side) if is_square_view(preset) else ImageOps.pad(image, side, color=PAD_COLOUR)
    return PreparedImage(np.asarray(view), tiles, grid, image.size)


def stacked(images: Sequence[PreparedImage]) -> PreparedImage:
    """Stack the global views of several images of one prompt. Raises DsocrError where one has tiles."""
    require_whole(image.grid for image in images)
    view = np.stack([image.global_view for image in images])
    return replace(images[0], global_view=view, more_sizes=tuple(image.image_size for image in images[1:]))


def require_whole(grids: Iterable[Grid]) -> None:
    """Raise DsocrError where an image of one prompt with several is cut into tiles."""
    if any(grid != NO_TILES for grid in grids):
        raise DsocrError("several images of one prompt are not cut into tiles; choose a preset without")


def is_square_view(preset: Preset) -> bool:
    """Tell whether the published code squeezes the page to a square, so that there is no padding."""
    return not preset.crop_mode and preset.image_size <= preset.tile_size


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size)  # resizing to the same size would copy it


def _tiles(image: Image.Image, grid: Grid, side: int) -> Bytes:
    if grid == NO_TILES:
        return np.zeros((0, side, side, 3), np.uint8)
    columns, rows = grid
    cells = pixels_of(_resized(image, (columns * side, rows * side))).reshape(rows, side, columns, side, -1)
    tiles = np.empty((rows, columns, side, side, 3), np.uint8)
    for channel in range(3):
        tiles[..., channel] = cells[..., channel].transpose(0, 2, 1, 3)
    return tiles.reshape(-1, side, side, 3)


def pixels_of(image: Image.Image) -> Bytes:
    """Pixels of an RGB image, (H, W, 4), or (H, W, 3) where Pillow holds it in several pieces.

    Of one piece without a copy: while Pillow copies pixels no other thread runs.
    """
    import pyarrow as pa  # takes a tenth of a second, once

    try:
        held = np.asarray(pa.array(image).flatten())
    except ValueError:  # in several pieces
        held = np.array(image)
    return held.reshape(image.height, image.width, -1)


def tensor_sha256(pixels: Bytes | None, shape: tuple[int, ...] = ()) -> str:
    """SHA-256 of the bf16 bytes, little endian, of a tensor of the model.

    `pixels` are views as bytes (..., H, W, 3), hashed as (..., 3, H, W). None stands for the tensor of zeros
    of that shape which the published code passes for a page without tiles.
    """
    if pixels is None:
        return _zeros_sha256(math.prod(shape))
    digest = hashlib.sha256()
    # View by view: few MB between table and digest, and few calls that let other threads in.
    for view in pixels.reshape(-1, *pixels.shape[-3:]):
        planes = np.empty((3, *view.shape[:2]), "<u2")
        np.take(_NORMALISED_BFLOAT16, view.transpose(2, 0, 1), out=planes, mode="clip")
        digest.update(planes.data)
    return digest.hexdigest()


@functools.cache
def _zeros_sha256(count: int) -> str:
    return hashlib.sha256(bytes(2 * count)).hexdigest()

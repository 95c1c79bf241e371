"""From a page image to the model's pixels, and their hashes, without torch.

Pixels stay bytes until they are on the device: normalisation has 256 results, in a table.
Letters: T tiles, S side of the global view in pixels, H and W sides of any view.
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
Floats = npt.NDArray[np.float32]

PAD_COLOUR = (127, 127, 127)


_HALF = np.float32(0.5)
NORMALISED: Floats = (np.arange(256, dtype=np.float32) / np.float32(255) - _HALF) / _HALF
"""The normalised value of every byte, -1 to 1, in the published order of float32 operations: (256,)."""
_BITS = NORMALISED.view(np.uint32)
_NORMALISED_BFLOAT16 = ((_BITS + 0x7FFF + ((_BITS >> 16) & 1)) >> 16).astype("<u2")
"""NORMALISED rounded to bf16, to nearest and ties to even: 16 bits of each."""


@dataclass(frozen=True)
class PreparedImage:
    """A page as bytes, in the layout of images. `image_size` is the page's (width, height) in pixels."""

    global_view: Bytes  # (S, S, 3), or (I, S, S, 3) of several images of one prompt
    tiles: Bytes  # (T, 640, 640, 3) or of another tile size; T = 0 when the page is not cut; row by row
    grid: Grid
    image_size: tuple[int, int]
    more_sizes: tuple[tuple[int, int], ...] = ()
    """Sizes of the images after the first, where several stand in one prompt."""


def prepare(image: Image.Image, preset: Preset) -> PreparedImage:
    """Cut and pad an RGB page as the published `infer` does under that preset.

    A page so narrow that its shorter side would round to no pixel has an all grey global view, as published.
    """
    grid, side = page_grid(*image.size, preset), (preset.view_size, preset.view_size)
    tiles = _tiles(image, grid, preset.tile_size)  # first: after the view its memory is new, 10 ms a page
    view = _resized(image, side) if is_square_view(preset) else ImageOps.pad(image, side, color=PAD_COLOUR)
    return PreparedImage(np.asarray(view), tiles, grid, image.size)


def stacked(images: Sequence[PreparedImage]) -> PreparedImage:
    """Stack several images of one prompt, which are not cut. Raises DsocrError."""
    require_whole(image.grid for image in images)
    view = np.stack([image.global_view for image in images])
    return replace(images[0], global_view=view, more_sizes=tuple(image.image_size for image in images[1:]))


def require_whole(grids: Iterable[Grid]) -> None:
    """Raises DsocrError for images of one prompt that are cut."""
    if any(grid != NO_TILES for grid in grids):
        raise DsocrError("several images of one prompt are not cut into tiles; choose a preset without")


def is_square_view(preset: Preset) -> bool:
    """Tell whether the published code resizes the page to a square; the padding then adds nothing."""
    return not preset.crop_mode and preset.image_size <= preset.tile_size


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size)  # Pillow copies one that has the size


def _tiles(image: Image.Image, grid: Grid, side: int) -> Bytes:
    if grid == NO_TILES:
        return np.zeros((0, side, side, 3), np.uint8)
    columns, rows = grid
    cells = np.asarray(_resized(image, (columns * side, rows * side))).reshape(rows, side, columns, side, 3)
    return np.ascontiguousarray(cells.transpose(0, 2, 1, 3, 4)).reshape(-1, side, side, 3)


def normalised(pixels: Bytes) -> Floats:
    """Bytes (..., H, W, 3) as the float32 values (..., 3, H, W) that the model is given, before bf16."""
    return np.ascontiguousarray(np.moveaxis(NORMALISED[pixels], -1, -3))


def tensor_sha256(pixels: Bytes | None, shape: tuple[int, ...] = ()) -> str:
    """SHA-256 of the bf16 bytes of the model's tensor, little endian.

    `pixels` are views as bytes (..., H, W, 3), hashed in the layout (..., 3, H, W); None stands for the
    tensor of zeros of that shape, which the published code passes for a page that is not cut.
    """
    if pixels is None:
        return _zeros_sha256(math.prod(shape))
    digest = hashlib.sha256()
    # Plane after plane: 1 MB stays in the cache between the table and the digest.
    for view in pixels.reshape(-1, *pixels.shape[-3:]):
        plane = np.empty(view.shape[:2], "<u2")
        for channel in range(3):
            np.take(_NORMALISED_BFLOAT16, view[..., channel], out=plane, mode="clip")
            digest.update(plane.data)
    return digest.hexdigest()


@functools.cache
def _zeros_sha256(count: int) -> str:
    return hashlib.sha256(bytes(2 * count)).hexdigest()

"""Views of a page as bytes on the device, made by the host or by the GPU.

The GPU does Pillow's sums of 32-bit integers (`page.resizing`), so its views have the same bytes. They are
copied back for their hashes. Where Pillow resizes differently, the host makes the views.

Letters: H rows and W columns of an image, S side of the global view, T tiles, V views.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dsocr_core.models.resolution import Preset
from dsocr_core.page.preprocess import (
    PAD_COLOUR,
    Bytes,
    PreparedImage,
    is_square_view,
    pixels_of,
    prepare,
    require_whole,
    stacked,
)
from dsocr_core.page.resizing import PRECISION_BITS, Size, height_first, padded_area, windows
from dsocr_core.page.tiling import NO_TILES, Grid, page_grid

Staged = tuple[Tensor, Tensor]
"""Views as bytes in host memory: global views (I, S, S, 3), tiles (T, 640, 640, 3) or of another size."""


@dataclass(frozen=True)
class Views:
    """A page's views as bytes on the device."""

    global_view: Tensor  # (1, S, S, 3)
    tiles: Tensor  # (T, 640, 640, 3) or of another tile size; T = 0 when the page is not cut
    grid: Grid
    image_size: Size
    on_host: Callable[[], PreparedImage]
    """Copy of the views on the host. Waits for it; on any thread."""
    more_sizes: tuple[Size, ...] = ()
    """Sizes of the images after the first, where several stand in one prompt."""


def views_of(image: Image.Image, preset: Preset, device: torch.device) -> Views:
    """Views of an RGB page, made by the device where that is possible."""
    if can_resize(device):
        return device_views(image, preset, device)
    return uploaded(prepare(image, preset), device)


def together(pages: Sequence[Views]) -> Views:
    """Join the global views of several images, which have no tiles. Raises DsocrError."""
    require_whole(page.grid for page in pages)

    def on_host() -> PreparedImage:
        return stacked([page.on_host() for page in pages])

    sizes = tuple(page.image_size for page in pages[1:])
    view = torch.cat([page.global_view for page in pages])
    return replace(pages[0], global_view=view, on_host=on_host, more_sizes=sizes)


def staged(image: PreparedImage, device: torch.device) -> Staged:
    """Put views made by the host where the copy to the device need not wait. On any thread."""
    whole = image.global_view.reshape(-1, *image.global_view.shape[-3:])
    return _staged(whole, device), _staged(image.tiles, device)


def _staged(views: Bytes, device: torch.device) -> Tensor:
    if device.type != "cuda" or not len(views):
        return torch.from_numpy(np.require(views, requirements="W"))
    # From pageable memory the copy would wait for the device. On this thread alone: torch's own copy asks all
    # cores, and waits for those that prepare other pages.
    held = torch.empty(views.shape, dtype=torch.uint8, pin_memory=True)
    np.copyto(held.numpy(), views)
    return held


def uploaded(image: PreparedImage, device: torch.device, prepared: Staged | None = None) -> Views:
    """Copy views made by the host to the device; `prepared` are those that `staged` has prepared."""
    view, tiles = (part.to(device, non_blocking=True) for part in prepared or staged(image, device))
    return Views(view, tiles, image.grid, image.image_size, lambda: image, image.more_sizes)


def can_resize(device: torch.device) -> bool:
    """Tell whether the device makes views: a GPU, with a Pillow that resizes as expected."""
    return device.type == "cuda" and bytes_hold()


_KNOWN_SIZES: tuple[tuple[Size, Size], ...] = (
    ((131, 97), (64, 64)), ((131, 97), (200, 150)), ((131, 97), (131, 30)), ((131, 97), (50, 97)),
    ((24, 24), (12, 12)), ((24, 24), (18, 11)), ((24, 24), (17, 11)), ((24, 24), (30, 23)),
    ((24, 24), (30, 30)), ((24, 48), (12, 16)), ((48, 24), (12, 6)), ((12, 36), (9, 29)), ((36, 12), (35, 9)),
    ((30, 20), (20, 30)),
)  # fmt: skip
"""Sizes (before, after) to test Pillow with, some near the change of which side comes first."""


@functools.cache
def bytes_hold() -> bool:
    """Test with a few images whether the device's bytes are Pillow's: another version may differ."""
    noise = np.random.default_rng(0).integers(0, 256, (97, 131, 3), np.uint8)
    pages = [(noise[:height, :width], size) for (width, height), size in _KNOWN_SIZES]
    return all(
        np.array_equal(
            resized(torch.from_numpy(page), size).numpy(), np.asarray(Image.fromarray(page).resize(size))
        )
        for page, size in pages
    )


def device_views(image: Image.Image, preset: Preset, device: torch.device) -> Views:
    """Make views of an RGB page on the device, as `page.preprocess.prepare` does on the host."""
    page = _staged(pixels_of(image), device).to(device, non_blocking=True)[..., :3]
    size, grid, side = image.size, page_grid(*image.size, preset), preset.view_size
    view = resized(page, (side, side)) if is_square_view(preset) else _padded(page, side)
    views = (view[None], _tiles(page, grid, preset.tile_size))
    return Views(*views, grid, size, _copied(*views, grid, size))


def resized(page: Tensor, size: Size) -> Tensor:
    """Resize bytes (H, W, 3) to `size`, bicubic, with the bytes of `Image.resize`."""
    before = (page.shape[1], page.shape[0])
    sides = (0, 1) if height_first(before, size) else (1, 0)
    for side in sides:
        target = size[1 - side]
        if page.shape[side] != target:
            page = _one_pass(page, side, target)
    return page


def _one_pass(page: Tensor, side: int, length: int) -> Tensor:
    """Resize along rows (`side` 0) or columns (1)."""
    pixels, weights = _windows_on(page.device, page.shape[side], length)
    values = page.int()
    shape = (-1, 1, 1) if side == 0 else (1, -1, 1)
    total: Tensor | None = None
    for step in range(pixels.shape[1]):
        part = values.index_select(side, pixels[:, step]) * weights[:, step].view(shape)
        total = part.add_(1 << (PRECISION_BITS - 1)) if total is None else total.add_(part)
    assert total is not None
    return (total >> PRECISION_BITS).clamp_(0, 255).to(torch.uint8)


@functools.lru_cache(maxsize=64)
def _windows_on(device: torch.device, before: int, after: int) -> tuple[Tensor, Tensor]:
    pixels, weights = windows(before, after)
    return torch.from_numpy(pixels).to(device), torch.from_numpy(weights).to(device)


def _padded(page: Tensor, side: int) -> Tensor:
    """Fit into a square of that side, (S, S, 3), with the bytes of `ImageOps.pad`."""
    (width, height), (left, top) = padded_area((page.shape[1], page.shape[0]), side)
    if (width, height) == (side, side):
        return resized(page, (side, side))
    out = torch.tensor(PAD_COLOUR, dtype=torch.uint8, device=page.device).expand(side, side, 3).clone()
    if min(width, height) > 0:
        out[top : top + height, left : left + width] = resized(page, (width, height))
    return out


def _tiles(page: Tensor, grid: Grid, side: int) -> Tensor:
    if grid == NO_TILES:
        return page.new_zeros((0, side, side, 3))
    columns, rows = grid
    cells = resized(page, (columns * side, rows * side)).view(rows, side, columns, side, 3)
    return cells.permute(0, 2, 1, 3, 4).reshape(-1, side, side, 3)


def _copied(view: Tensor, tiles: Tensor, grid: Grid, size: Size) -> Callable[[], PreparedImage]:
    """Begin to copy the views to the host. The returned function waits for them."""
    on_gpu = view.device.type == "cuda"
    copies = [
        torch.empty(part.shape, dtype=part.dtype, pin_memory=on_gpu and len(part) > 0)
        for part in (view, tiles)
    ]
    for copy, part in zip(copies, (view, tiles), strict=True):
        copy.copy_(part, non_blocking=True)
    copied = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
    if copied is not None:
        copied.record()

    def on_host() -> PreparedImage:
        if copied is not None:
            copied.synchronize()
        return PreparedImage(copies[0][0].numpy(), copies[1].numpy(), grid, size)

    return on_host

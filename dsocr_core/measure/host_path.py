"""Work of the host on a page before the device can start, and beside it: part by part, each in two ways.

    dsocr measure host-path --size 1280x1280

"Straight" is the part as a few lines of Pillow, numpy and hashlib would do it; the other is the project's,
and their results must be the same bytes. Processor time is that of this process: a page is opened in another
one, which shows on the clock alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from dsocr_core.base.console import OK, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.temporary import Temporary
from dsocr_core.measure.rows import Rows
from dsocr_core.measure.synthetic_page import draw_page, parse_size
from dsocr_core.models.family import preset_named
from dsocr_core.models.resolution import TILE_SIZE, Preset
from dsocr_core.page.documents import load_image
from dsocr_core.page.preprocess import NORMALISED, PAD_COLOUR, prepare, tensor_sha256, to_bfloat16
from dsocr_core.page.resizing import MOST_BANDS, Bytes
from dsocr_core.page.tiling import NO_TILES, page_grid

Views = tuple[Bytes, Bytes]
"""The global view (S, S, 3) and the tiles (T, 640, 640, 3)."""


def run(*, size: str = "1280x1280", preset: str = "gundam", repeat: int = 20) -> int:
    """Time what the host does of a page: opening, resizing, hashes. Ends with one line of JSON.

    Args:
        size: of the drawn page, like 1280x1280
        preset: tiny, small, base, large or gundam
        repeat: measured passes of each way
    """
    pixels, chosen = parse_size(size), preset_named(preset)
    rows = Rows(torch.device("cpu"))
    with Temporary("host-path") as folder:
        measure(rows, draw_page(Path(folder) / "page.png", pixels, 0), chosen, repeat)
    print_json(rows.document(size=pixels, preset=preset, bands=MOST_BANDS))
    return OK


def measure(rows: Rows, page: Path, preset: Preset, repeat: int) -> None:
    """Time every part of one page. Raises DsocrError when two ways do not give the same bytes."""
    image = load_image(page)
    view, tiles = _straight_views(image, preset)
    prepared = prepare(image, preset, MOST_BANDS)
    hashed = view[None], tiles
    same_views = np.array_equal(prepared.global_view, view) and np.array_equal(prepared.tiles, tiles)
    if not same_views or any(tensor_sha256(part) != _straight_sha256(part) for part in hashed):
        raise DsocrError(f"host-path: the two ways of a {preset.name} page differ; run the tests of inputs")
    rows.table(f"host path, {preset.name}, {MOST_BANDS} threads")
    ways: Mapping[str, Callable[[], object]] = {
        "open": lambda: load_image(page),
        "resize and pad, straight": lambda: _straight_views(image, preset),
        "resize and pad": lambda: prepare(image, preset, MOST_BANDS),
        "hashes, straight": lambda: [_straight_sha256(part) for part in hashed],
        "hashes (beside the device)": lambda: [tensor_sha256(part) for part in hashed],
    }
    for name, way in ways.items():
        way()
        rows.row(name, way, repeat=repeat)


def _straight_views(image: Image.Image, preset: Preset) -> Views:
    grid, side, tile = page_grid(*image.size, preset), preset.view_size, preset.tile_size
    tiles = np.zeros((0, tile, tile, 3), np.uint8)
    if grid != NO_TILES:
        whole = np.asarray(image.resize((grid[0] * tile, grid[1] * tile)))
        cells = whole.reshape(grid[1], tile, grid[0], tile, 3).transpose(0, 2, 1, 3, 4)
        tiles = np.ascontiguousarray(cells).reshape(-1, tile, tile, 3)
    if not preset.crop_mode and preset.image_size <= TILE_SIZE:
        image = image.resize((side, side))
    return np.asarray(ImageOps.pad(image, (side, side), color=PAD_COLOUR)), tiles


def _straight_sha256(views: Bytes) -> str:
    values = np.moveaxis(to_bfloat16(NORMALISED).astype("<u2")[views], -1, -3)
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()

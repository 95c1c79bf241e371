"""What the model sees of a page in each mode, and which character lies in each cell of a view.

A cell is 8 px wide and 16 px high: two in every SAM patch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from data.mini.training.page import Glyph, Page

CELL_WIDTH_PX = 8
CELL_HEIGHT_PX = 16
TILE_PX = 640
GREY = 127
FIRST_PRINTABLE = 32

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """Pixels (P, P, 3) and character classes (P / 16, P / 8) of one square view."""

    pixels: Bytes
    characters: Bytes


@dataclass(frozen=True)
class PageViews:
    """The global view and, in the mode with crops, the tiles in reading order of a (columns, rows) grid."""

    whole: View
    tiles: tuple[View, ...] = ()
    columns: int = 1
    rows: int = 1


def _character_cells(
    glyphs: tuple[Glyph, ...], scale: tuple[float, float], shift: tuple[float, float], width: int, height: int
) -> Bytes:
    """Classes of the characters whose centres fall in each cell of a width x height view; 0 is background."""
    cells = np.zeros((height // CELL_HEIGHT_PX, width // CELL_WIDTH_PX), np.uint8)
    for glyph in glyphs:
        row = int((glyph.y * scale[1] + shift[1]) / CELL_HEIGHT_PX)
        column = int((glyph.x * scale[0] + shift[0]) / CELL_WIDTH_PX)
        if 0 <= row < cells.shape[0] and 0 <= column < cells.shape[1]:
            cells[row, column] = ord(glyph.character) - FIRST_PRINTABLE
    return cells


def _rgb(image: Image.Image) -> Bytes:
    pixels = np.asarray(image)
    return np.repeat(pixels[:, :, None], 3, 2) if pixels.ndim == 2 else pixels


def squeezed(page: Page, side: int) -> PageViews:
    """The small modes: resized to side x side without keeping the aspect ratio."""
    width, height = page.image.size
    image = page.image.resize((side, side), Image.BICUBIC)
    cells = _character_cells(page.glyphs, (side / width, side / height), (0, 0), side, side)
    return PageViews(View(_rgb(image), cells))


def padded(page: Page, side: int) -> PageViews:
    """The large modes: as large as fits side x side, centred on grey."""
    width, height = page.image.size
    colour = GREY if page.image.mode == "L" else (GREY,) * 3
    image = ImageOps.pad(page.image, (side, side), Image.BICUBIC, color=colour)
    scale = side / max(width, height)
    shift = ((side - width * scale) / 2, (side - height * scale) / 2)
    return PageViews(View(_rgb(image), _character_cells(page.glyphs, (scale, scale), shift, side, side)))


def cropped(page: Page, side: int, columns: int, rows: int) -> PageViews:
    """The mode with crops: a padded global view and columns x rows tiles of the stretched page."""
    width, height = page.image.size
    wide, high = TILE_PX * columns, TILE_PX * rows
    pixels = _rgb(page.image.resize((wide, high), Image.BICUBIC))
    cells = _character_cells(page.glyphs, (wide / width, high / height), (0, 0), wide, high)
    tiles = []
    for row in range(rows):
        for column in range(columns):
            top, left = row * TILE_PX, column * TILE_PX
            tile = pixels[top : top + TILE_PX, left : left + TILE_PX]
            y, x = top // CELL_HEIGHT_PX, left // CELL_WIDTH_PX
            part = cells[y : y + TILE_PX // CELL_HEIGHT_PX, x : x + TILE_PX // CELL_WIDTH_PX]
            tiles.append(View(tile, part))
    return PageViews(padded(page, side).whole, tuple(tiles), columns, rows)


def image_tokens(views: PageViews) -> int:
    """Length of the image span: rows end with a newline, the whole with the separator."""
    q = -(-views.whole.pixels.shape[0] // 64)
    local = TILE_PX // 64
    tiles = (local * views.columns + 1) * local * views.rows if views.tiles else 0
    return tiles + (q + 1) * q + 1

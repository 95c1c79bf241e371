"""What the model sees of a page in each mode, which character lies in which cell, and where edges run.

A cell is 8 px wide and 16 px high: two in every SAM patch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from data.mini.training.page import Block, Glyphs, Page

PATCH_PX = 16
CELL_WIDTH_PX = 8
CELL_HEIGHT_PX = 16
EDGES = 4  # of a block: left, right, top, bottom
TILE_PX = 640
TOKEN_PX = 64
GREY = 127
FIRST_PRINTABLE = 32
CROWDED = 255  # the class of a cell with more characters than anyone could name; left out of the loss
CROWD = 3

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """Pixels (H, W, 3), character classes (H / 16, W / 8) and edge classes (4, H / 16, W / 16) of one view.

    0 is background. A block's left, right, top or bottom edge that runs through a patch has the class of the
    pixel in it, 1..16 from the left or from the top.
    """

    pixels: Bytes
    characters: Bytes
    edges: Bytes


@dataclass(frozen=True)
class PageViews:
    """The global view and, in a mode with crops, the stretched page that the tiles are cut from."""

    whole: View
    local: View | None = None


def _character_cells(
    glyphs: Glyphs, scale: tuple[float, float], shift: tuple[float, float], width: int, height: int
) -> Bytes:
    """Classes of the characters whose centres fall in each cell of the view; the last one wins."""
    cells = np.zeros((height // CELL_HEIGHT_PX, width // CELL_WIDTH_PX), np.uint8)
    rows = np.floor((glyphs.y * scale[1] + shift[1]) / CELL_HEIGHT_PX).astype(np.int64)
    columns = np.floor((glyphs.x * scale[0] + shift[0]) / CELL_WIDTH_PX).astype(np.int64)
    inside = (rows >= 0) & (rows < cells.shape[0]) & (columns >= 0) & (columns < cells.shape[1])
    flat = rows[inside] * cells.shape[1] + columns[inside]
    cells.ravel()[flat] = glyphs.codes[inside] - FIRST_PRINTABLE
    crowded = np.bincount(flat, minlength=cells.size) >= CROWD
    cells.ravel()[crowded] = CROWDED
    return cells


def _edge_cells(
    blocks: Sequence[Block], scale: tuple[float, float], shift: tuple[float, float], width: int, height: int
) -> Bytes:
    """Classes of the edges in each patch of the view; where two of a kind meet in one, the last wins."""
    cells = np.zeros((EDGES, height // PATCH_PX, width // PATCH_PX), np.uint8)
    for block in blocks:
        x1, y1, x2, y2 = block.box
        left, right = _span(x1, x2, scale[0], shift[0], width)
        top, bottom = _span(y1, y2, scale[1], shift[1], height)
        columns = slice(left // PATCH_PX, right // PATCH_PX + 1)
        rows = slice(top // PATCH_PX, bottom // PATCH_PX + 1)
        cells[0, rows, left // PATCH_PX] = left % PATCH_PX + 1
        cells[1, rows, right // PATCH_PX] = right % PATCH_PX + 1
        cells[2, top // PATCH_PX, columns] = top % PATCH_PX + 1
        cells[3, bottom // PATCH_PX, columns] = bottom % PATCH_PX + 1
    return cells


def _span(near: int, far: int, scale: float, shift: float, side: int) -> tuple[int, int]:
    """First and last pixel of the view that a block takes."""
    first = min(side - 1, max(0, int(near * scale + shift)))
    return first, min(side - 1, max(first, math.ceil(far * scale + shift) - 1))


def _rgb(image: Image.Image) -> Bytes:
    pixels = np.asarray(image)
    return np.repeat(pixels[:, :, None], 3, 2) if pixels.ndim == 2 else pixels


def _view(image: Image.Image, page: Page, scale: tuple[float, float], shift: tuple[float, float]) -> View:
    """What is where in `image`, which shows the page times `scale`, `shift` px from its corner."""
    characters = _character_cells(page.glyphs, scale, shift, *image.size)
    return View(_rgb(image), characters, _edge_cells(page.blocks, scale, shift, *image.size))


def _stretched(page: Page, wide: int, high: int) -> View:
    width, height = page.image.size
    image = page.image.resize((wide, high), Image.BICUBIC)
    return _view(image, page, (wide / width, high / height), (0, 0))


def squeezed(page: Page, side: int) -> PageViews:
    """The small modes: resized to side x side without keeping the aspect ratio."""
    return PageViews(_stretched(page, side, side))


def padded(page: Page, side: int) -> PageViews:
    """The large modes: as large as fits side x side, centred on grey."""
    width, height = page.image.size
    colour = GREY if page.image.mode == "L" else (GREY,) * 3
    image = ImageOps.pad(page.image, (side, side), Image.BICUBIC, color=colour)
    scale = side / max(width, height)
    shift = ((side - width * scale) / 2, (side - height * scale) / 2)
    return PageViews(_view(image, page, (scale, scale), shift))


def cropped(page: Page, side: int, columns: int, rows: int) -> PageViews:
    """The mode with crops: a padded global view, and the page stretched over columns x rows tiles."""
    return PageViews(padded(page, side).whole, _stretched(page, TILE_PX * columns, TILE_PX * rows))


@dataclass(frozen=True)
class Mode:
    """How a page is shown: the global view's side in px and, in the mode with crops, the grid of tiles.

    `longest_target` is the most tokens that a page drawn for the mode may take.
    """

    name: str
    side: int
    longest_target: int
    columns: int = 0
    rows: int = 0

    @property
    def cropped(self) -> bool:
        return self.columns > 0

    @property
    def finest(self) -> tuple[int, int]:
        """Width and height in px of the finest view: the stretched page where there are crops."""
        return (TILE_PX * self.columns, TILE_PX * self.rows) if self.cropped else (self.side, self.side)

    @property
    def aspect(self) -> float | None:
        """Width over height that makes the dynamic grid choose this one; None: any."""
        return self.columns / self.rows if self.cropped else None

    @property
    def image_tokens(self) -> int:
        """Length of the image span: rows end with a newline, the whole with the separator."""
        q = self.side // TOKEN_PX
        local = TILE_PX // TOKEN_PX
        tiles = (local * self.columns + 1) * local * self.rows
        return tiles + (q + 1) * q + 1

    def views(self, page: Page) -> PageViews:
        if self.cropped:
            return cropped(page, self.side, self.columns, self.rows)
        return squeezed(page, self.side) if self.side <= TILE_PX else padded(page, self.side)


TINY = Mode("tiny", 512, 320)
SMALL = Mode("small", 640, 420)
BASE = Mode("base", 1024, 640)
LARGE = Mode("large", 1280, 800)
GRIDS = ((1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (3, 2), (3, 3))
GUNDAM = tuple(Mode(f"gundam-{c}x{r}", 1024, 1000, c, r) for c, r in GRIDS)
MODES = (TINY, SMALL, BASE, LARGE, *GUNDAM)
# The modes that a preset's held-out pages go through: the dynamic grid decides by the page's shape.
PRESETS = {"tiny": (TINY,), "small": (SMALL,), "base": (BASE,), "large": (LARGE,), "gundam": GUNDAM}

"""Views of a page in each mode, the characters in their cells, and the ends of boxes.

A cell is 8 px wide and 16 px high: two in every SAM patch.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from data.mini.training.markup import bins
from data.mini.training.page import Glyphs, Page

PATCH_PX = 16
CELL_WIDTH_PX = 8
CELL_HEIGHT_PX = 16
EDGES = 4  # of a box: left, top, right, bottom
TILE_PX = 640
TOKEN_PX = 64
GREY = 127
FIRST_PRINTABLE = 32
CROWDED = 255  # the class of a cell with more characters than anyone could name; left out of the loss
CROWD = 3

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """Pixels (H, W, 3) and character classes (H / 16, W / 8) of one view; 0 is background."""

    pixels: Bytes
    characters: Bytes


@dataclass(frozen=True)
class PageViews:
    """The global view and, in a mode with crops, the stretched page that the tiles are cut from.

    `places` (4, H / 64, W / 64) are of the global view: in every token through which an edge of a box runs,
    the number that the answer has for it, plus one; 0 is background.
    """

    whole: View
    places: NDArray[np.int16]
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


def _places(
    page: Page, scale: tuple[float, float], shift: tuple[float, float], side: int
) -> NDArray[np.int16]:
    """The places of a view as wide as high; where two edges of a kind meet in one token, the last wins."""
    cells = np.zeros((EDGES, side // TOKEN_PX, side // TOKEN_PX), np.int16)
    for block in page.blocks:
        x1, y1, x2, y2 = block.box
        left, right = _tokens(x1, x2, scale[0], shift[0], side)
        top, bottom = _tokens(y1, y2, scale[1], shift[1], side)
        rows, columns = slice(top, bottom + 1), slice(left, right + 1)
        runs = ((rows, left), (top, columns), (rows, right), (bottom, columns))
        for edge, run, number in zip(cells, runs, bins(block, *page.image.size), strict=True):
            edge[run] = number + 1
    return cells


def _tokens(near: int, far: int, scale: float, shift: float, side: int) -> tuple[int, int]:
    """First and last token that a block takes, by its first and last pixel of the page."""
    first = min(side - 1, max(0, int(near * scale + shift)))
    last = min(side - 1, max(first, math.ceil(far * scale + shift) - 1))
    return first // TOKEN_PX, last // TOKEN_PX


def _rgb(image: Image.Image) -> Bytes:
    pixels = np.asarray(image)
    return np.repeat(pixels[:, :, None], 3, 2) if pixels.ndim == 2 else pixels


def _view(image: Image.Image, page: Page, scale: tuple[float, float], shift: tuple[float, float]) -> View:
    """Place what is in `image`, which shows the page times `scale`, `shift` px from its corner."""
    return View(_rgb(image), _character_cells(page.glyphs, scale, shift, *image.size))


def _stretched(page: Page, wide: int, high: int) -> View:
    width, height = page.image.size
    image = page.image.resize((wide, high), Image.BICUBIC)
    return _view(image, page, (wide / width, high / height), (0, 0))


def squeezed(page: Page, side: int) -> PageViews:
    """The small modes: resized to side x side without keeping the aspect ratio."""
    width, height = page.image.size
    places = _places(page, (side / width, side / height), (0, 0), side)
    return PageViews(_stretched(page, side, side), places)


def padded(page: Page, side: int) -> PageViews:
    """The large modes: as large as fits side x side, centred on grey."""
    width, height = page.image.size
    colour = GREY if page.image.mode == "L" else (GREY,) * 3
    image = ImageOps.pad(page.image, (side, side), Image.BICUBIC, color=colour)
    scale = side / max(width, height)
    shift = ((side - width * scale) / 2, (side - height * scale) / 2)
    return PageViews(_view(image, page, (scale, scale), shift), _places(page, (scale, scale), shift, side))


def cropped(page: Page, side: int, columns: int, rows: int) -> PageViews:
    """The mode with crops: a padded global view, and the page stretched over columns x rows tiles."""
    return replace(padded(page, side), local=_stretched(page, TILE_PX * columns, TILE_PX * rows))


@dataclass(frozen=True)
class Mode:
    """Mode of showing a page: the global view's side in px and, in the mode with crops, the grid of tiles.

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

"""The tiles of a page as each side's model gets them: drawn on the page, with the tokens of each.

Plain HTML: the page is a background and the tiles are equal cells on it, for a page is stretched to the size
of all its tiles before it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

import pandas as pd
import streamlit as st

from dsocr_core.models.resolution import tokens_per_side
from dsocr_core.page.inputs import Size, changes
from dsocr_core.page.preprocess import is_square_view
from dsocr_core.page.tiling import Grid, image_token_count, page_grid, tile_count
from dsocr_core.reading.records import OcrRequest, Side
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

_WIDEST, _HIGHEST, _NARROWEST, _VIEW = 420, 440, 24, 120
"""Pixels on the screen: of the page at most and at least, and of the global view."""
_FEW = 12
_HEAD = "Tokens in the order of the prompt; a tile with the pixels of the page that it shows."


def draw(requests: Mapping[Side, OcrRequest], picture: resources.Picture) -> None:
    """Draw both sides beside each other where they differ, else one for both; then the table."""
    size, layouts = (picture.width, picture.height), dict[Layout, list[Side]]()
    for side, request in requests.items():
        if request.told("preset") is not None:
            layouts.setdefault(layout_of(request, size), []).append(side)
    if not layouts:
        return
    named = {" and ".join(map(side_letter, sides)): layout for layout, sides in layouts.items()}
    url = resources.picture_url(picture, "tiles")
    for column, (name, layout) in zip(st.columns(len(named)), named.items(), strict=True):
        with column:
            st.html(layout_html(layout, url))
            st.caption(plain(f"{name}: {layout.words}"))
    frame = tile_table(named)
    figure.head(_HEAD, tiles=frame)
    table.draw(frame, TILES, "", _FEW)


# --- what is drawn --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Neighbouring tokens of a page in the prompt."""

    name: str
    tokens: int
    corners: tuple[int, int, int, int] | None = None
    """Pixels of the page that they show, to the nearest: left, top, right, bottom."""


@dataclass(frozen=True)
class Layout:
    """The tokens of a page under a preset."""

    words: str
    size: Size
    grid: Grid
    parts: tuple[Part, ...]
    squeezed: bool
    """True where the global view is the page without its proportions."""

    @property
    def tiles(self) -> tuple[Part, ...]:
        return self.parts[: tile_count(self.grid)]

    @property
    def view(self) -> Part:
        """The global view."""
        return next(part for part in self.parts if part.name == GLOBAL)


GLOBAL = "global view"


def layout_of(request: OcrRequest, size: Size) -> Layout:
    """The layout of a page of that size in pixels."""
    preset, family = request.resolution, request.family
    grid = page_grid(*size, preset)
    tokens = image_token_count(preset, grid, family.newline)
    columns, rows = grid
    words = [f"{family.title}, {preset.name}", f"{tokens:,} image tokens", *changes(size, grid, preset)]
    if tile_count(grid):
        words.insert(
            1, f"{columns} x {rows} tiles of {preset.tile_size} px and a view of {preset.view_size} px"
        )
    if request.more:
        words.append(f"one of {len(request.images)} images in one prompt")
    parts = tuple(
        _parts(
            size, grid, tokens_per_side(preset.image_size), tokens_per_side(preset.view_size), family.newline
        )
    )
    return Layout("; ".join(words), size, grid, parts, is_square_view(preset))


def _parts(size: Size, grid: Grid, tile: int, view: int, newline: bool) -> Iterator[Part]:
    """Parts in the order of the prompt. `tile` and `view` are tokens along a side."""
    (width, height), (columns, rows) = size, grid
    if tile_count(grid):
        across = [round(column * width / columns) for column in range(columns + 1)]
        down = [round(row * height / rows) for row in range(rows + 1)]
        for number in range(columns * rows):
            x, y = number % columns, number // columns
            yield Part(f"tile {number + 1}", tile**2, (across[x], down[y], across[x + 1], down[y + 1]))
        if newline:
            yield Part("row ends of the tiles", rows * tile)
    yield Part(GLOBAL, view**2, (0, 0, width, height))
    if newline:
        yield Part("row ends of the global view", view)
    yield Part("separator", 1)


TILES = {
    "side": Column("side", width=70), "part": Column("part"), "tokens": Column("tokens", "count"),
    "x1, y1, x2, y2 (px)": Column("x1, y1, x2, y2 (px)"),
}  # fmt: skip
"""Columns of `tile_table`."""


def tile_table(layouts: Mapping[str, Layout]) -> pd.DataFrame:
    """A row a part, for each side by its name."""
    rows = [
        (name, part.name, part.tokens, ", ".join(map(str, part.corners or ())))
        for name, layout in layouts.items()
        for part in layout.parts
    ]
    return pd.DataFrame(rows, columns=list(TILES))


def layout_html(layout: Layout, url: str) -> str:
    """The page with its tiles, and beside it the global view as the model gets it."""
    scale, (columns, rows) = min(_WIDEST / layout.size[0], _HIGHEST / layout.size[1]), layout.grid
    width, height = (max(_NARROWEST, round(side * scale)) for side in layout.size)
    cell = width / columns, height / rows
    cells = "".join(_cell_html(number, part, cell) for number, part in enumerate(layout.tiles, start=1))
    picture = f"background-image:url({escape(url, quote=True)})"
    page = (
        f"<div class='dsocr-tiles-page' style='width:{width}px;aspect-ratio:{width}/{height};"
        f"grid-template:repeat({rows},1fr)/repeat({columns},1fr);{picture}'>{cells}</div>"
    )
    fit = "100% 100%" if layout.squeezed else "contain"
    view = (
        f"<div class='dsocr-tiles-view' style='width:{_VIEW}px;background-size:{fit};{picture}'>"
        f"<b>{layout.view.tokens}</b></div>"
    )
    return (
        f"<div class='dsocr-tiles' role='img' aria-label='{escape(layout.words, quote=True)}'>"
        f"{page if layout.tiles else ''}{view}</div>"
    )


def _cell_html(number: int, tile: Part, size: tuple[float, float]) -> str:
    """A tile with as many words as it has room for."""
    words = f"<b>{number}</b>" if size[0] >= 16 and size[1] >= 14 else ""
    words += f"<small>{tile.tokens}</small>" if size[0] >= 40 and size[1] >= 36 else ""
    return f"<i title='{tile.name}: {tile.tokens} tokens'>{words}</i>"

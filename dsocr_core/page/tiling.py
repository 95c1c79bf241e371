"""Grid of tiles and number of image tokens of a page, as pure functions of sizes."""

from __future__ import annotations

import functools

from dsocr_core.models.resolution import MAX_TILES, MIN_TILES, TILE_SIZE, Preset, tokens_per_side

Grid = tuple[int, int]
"""Tiles as (columns, rows); (1, 1) means that the page is not cut."""
NO_TILES: Grid = (1, 1)


@functools.cache
def _candidates(most: int) -> tuple[Grid, ...]:
    # The published code sorts a set of pairs by their number of tiles alone, so equal numbers keep the order
    # in which CPython walks the set, which depends on the order of insertion. With up to 9 tiles it decides
    # nothing, as a test over all orders shows; with up to 32 it does.
    inserted = (
        (columns, rows)
        for square in range(MIN_TILES, most + 1)
        for columns in range(1, square + 1)
        for rows in range(1, square + 1)
        if MIN_TILES <= columns * rows <= most
    )
    return tuple(sorted(set(inserted), key=lambda grid: grid[0] * grid[1]))


def crop_grid(width: int, height: int, max_tiles: int = MAX_TILES, tile_size: int = TILE_SIZE) -> Grid:
    """Grid of tiles of a page of that size in pixels, with `crop_mode` on.

    The grid closest to the page's aspect ratio wins. On an exact tie the larger grid wins if the page has
    more than half of its pixels. Raises ValueError for sides below 1.
    """
    if width < 1 or height < 1:
        raise ValueError(f"a page of {width} x {height} pixels has no grid")
    if width <= tile_size and height <= tile_size:
        return NO_TILES
    ratio = width / height
    best, best_distance = NO_TILES, float("inf")
    for columns, rows in _candidates(max_tiles):
        distance = abs(ratio - columns / rows)
        fills_half = width * height > 0.5 * tile_size * tile_size * columns * rows
        if distance < best_distance or (distance == best_distance and fills_half):
            best, best_distance = (columns, rows), distance
    return best


def page_grid(width: int, height: int, preset: Preset) -> Grid:
    """Grid that the preset gives a page of that size in pixels."""
    return crop_grid(width, height, preset.max_tiles, preset.tile_size) if preset.crop_mode else NO_TILES


def tile_count(grid: Grid) -> int:
    """Number of tiles of a grid: 0 when the page is not cut."""
    return 0 if grid == NO_TILES else grid[0] * grid[1]


def view_sizes(preset: Preset, grid: Grid) -> tuple[int, ...]:
    """Sides in pixels of the square views of a page: every tile, then the global view."""
    return (preset.tile_size,) * tile_count(grid) + (preset.view_size,)


def image_token_count(preset: Preset, grid: Grid, newline: bool = True) -> int:
    """Positions of a page in the prompt: vision tokens, row ends if the model has them, the separator."""
    side, end = tokens_per_side(preset.view_size), int(newline)
    tokens = (side + end) * side + 1
    if grid != NO_TILES:
        columns, rows = grid
        tile_side = tokens_per_side(preset.image_size)
        tokens += (tile_side * columns + end) * (tile_side * rows)
    return tokens

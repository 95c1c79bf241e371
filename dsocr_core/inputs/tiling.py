"""The crop grid of a page and how many vision tokens it becomes: pure functions of its size."""

from __future__ import annotations

from dsocr_core.resolution import TILE_SIZE, Preset, tokens_per_side

MIN_TILES, MAX_TILES = 2, 9

_CANDIDATES: tuple[tuple[int, int], ...] = tuple(
    sorted(
        (
            (columns, rows)
            for columns in range(1, MAX_TILES + 1)
            for rows in range(1, MAX_TILES + 1)
            if MIN_TILES <= columns * rows <= MAX_TILES
        ),
        key=lambda grid: grid[0] * grid[1],
    )
)
# The published code orders grids of equal tile count by the iteration order of a Python set. That order
# never shows: an aspect ratio halfway between two such grids is always closer to a third one
# (tests/unit/test_tiling.py proves it for all pairs), so any order within a tile count will do.


def crop_grid(width: int, height: int) -> tuple[int, int]:
    """(columns, rows) of the tiles of a page of that size in pixels; (1, 1) means no tiles.

    The grid whose aspect ratio is closest to the page's; of grids with the same ratio, the larger one
    when the page has more than half its pixels. Raises ValueError for a size below one pixel.
    """
    if width < 1 or height < 1:
        raise ValueError(f"a page of {width} x {height} pixels has no grid")
    if width <= TILE_SIZE and height <= TILE_SIZE:
        return (1, 1)
    aspect = width / height
    best, best_difference = (1, 1), float("inf")
    for columns, rows in _CANDIDATES:
        difference = abs(aspect - columns / rows)
        if difference < best_difference:
            best, best_difference = (columns, rows), difference
        elif difference == best_difference and width * height > 0.5 * TILE_SIZE**2 * columns * rows:
            best = (columns, rows)
    return best


def page_grid(preset: Preset, width: int, height: int) -> tuple[int, int]:
    """The grid a preset gives a page: `crop_grid` in crop mode, else (1, 1)."""
    return crop_grid(width, height) if preset.crop_mode else (1, 1)


def tile_count(grid: tuple[int, int]) -> int:
    """How many tiles a grid has; none for (1, 1)."""
    return 0 if grid == (1, 1) else grid[0] * grid[1]


def image_token_count(preset: Preset, grid: tuple[int, int]) -> int:
    """Positions the image takes in the prompt: row ends and the view separator included."""
    side = tokens_per_side(preset.view_size)
    count = (side + 1) * side + 1
    if tile_count(grid):
        columns, rows = grid
        tile_side = tokens_per_side(preset.image_size)
        count += (tile_side * columns + 1) * (tile_side * rows)
    return count

"""Grid and token counts against what the published code gave, and as invariants."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.page import tiling
from dsocr_core.page.tiling import crop_grid, image_token_count, page_grid, tile_count, view_sizes
from tests.support.paths import PUBLISHED

sides = st.integers(1, 20_000)


def test_every_published_grid() -> None:
    rows = json.loads((PUBLISHED / "grids.json").read_text(encoding="utf-8"))
    assert len(rows) > 300
    wrong = [row for row in rows if crop_grid(row[0], row[1]) != (row[2], row[3])]
    assert wrong == []


def test_every_published_token_count() -> None:
    cases = json.loads((PUBLISHED / "preprocess.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 65
    for case in cases:
        preset = PRESETS[case["preset"]]
        grid = page_grid(case["width"], case["height"], preset)
        assert list(grid) == case["grid"], case
        assert image_token_count(preset, grid) == case["image_tokens"], case


@pytest.mark.parametrize(
    ("width", "height", "grid"),
    [
        (640, 640, (1, 1)),
        (641, 640, (2, 2)),
        (1, 1, (1, 1)),
        (1, 641, (1, 9)),
        (5000, 100, (9, 1)),
        # 5:4 lies exactly between 1 (2x2) and 1.5 (3x2): the larger grid needs half of its pixels.
        (800, 640, (2, 2)),
        (1250, 1000, (3, 2)),
        # 2:1 is (2, 1) and (4, 2) exactly; half of 8 tiles are 1,638,400 pixels.
        (1810, 905, (2, 1)),
        (1812, 906, (4, 2)),
    ],
)
def test_grids_are_as_worked_out_by_hand(width: int, height: int, grid: tuple[int, int]) -> None:
    assert crop_grid(width, height) == grid


@pytest.mark.parametrize(
    ("width", "height", "most", "side", "grid"),
    [
        # A square of 1500 px fills half of 3 x 3 tiles; 3 x 3 are more than six.
        (1500, 1500, 9, 640, (3, 3)),
        (1500, 1500, 6, 640, (2, 2)),
        (1812, 906, 6, 640, (2, 1)),
        # 2:3 as 2 x 3, 4 x 6: the latter's half are 4,915,200 pixels.
        (1810, 2715, 32, 640, (2, 3)),
        (1812, 2718, 32, 640, (4, 6)),
        (700, 700, 9, 768, (1, 1)),
        (700, 769, 9, 768, (2, 2)),
    ],
)
def test_grids_of_other_engines(width: int, height: int, most: int, side: int, grid: tuple[int, int]) -> None:
    assert crop_grid(width, height, most, side) == grid


def test_the_order_among_equally_many_tiles_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ties lie midway between two ratios: try each midpoint under both orders of every group."""
    ratios = sorted({columns / rows for columns, rows in tiling._candidates(9)})
    pages = [(columns * k, rows * k) for columns, rows in tiling._candidates(9) for k in (300, 640, 1500)]
    for low, high in itertools.pairwise(ratios):
        middle = ((low + high) / 2).as_integer_ratio()
        for height in (720, 5040, middle[1] if middle[1] < 10_000 else 2520):
            pages += [(round(height * middle[0] / middle[1]) + d, height) for d in (-1, 0, 1)]
    expected = [crop_grid(*page) for page in pages]
    reordered = list(tiling._candidates(9))
    reordered.sort(key=lambda grid: (grid[0] * grid[1], -grid[0]))
    assert tuple(reordered) != tiling._candidates(9)
    monkeypatch.setattr(tiling, "_candidates", lambda most: tuple(reordered))
    assert [crop_grid(*page) for page in pages] == expected


@given(sides, sides)
def test_grid_is_within_bounds_and_closest(width: int, height: int) -> None:
    columns, rows = crop_grid(width, height)
    if max(width, height) <= 640:
        assert (columns, rows) == (1, 1)
        return
    assert 2 <= columns * rows <= 9
    distance = abs(width / height - columns / rows)
    for i, j in itertools.product(range(1, 10), repeat=2):
        if 2 <= i * j <= 9:
            assert distance <= abs(width / height - i / j)


@given(sides, sides, st.sampled_from(sorted(PRESETS)))
def test_tokens_are_those_of_the_views(width: int, height: int, name: str) -> None:
    """Counted another way: a newline a row of each stitched picture, and one separator."""
    preset = PRESETS[name]
    grid = page_grid(width, height, preset)
    sizes = view_sizes(preset, grid)
    assert len(sizes) == tile_count(grid) + 1
    vision = sum((size // 64) ** 2 for size in sizes)
    rows = sizes[-1] // 64 + (grid[1] * 10 if tile_count(grid) else 0)
    assert image_token_count(preset, grid) == vision + rows + 1


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, 0), (-1, 5)])
def test_a_page_without_area_has_no_grid(width: int, height: int) -> None:
    with pytest.raises(ValueError, match="has no grid"):
        crop_grid(width, height)

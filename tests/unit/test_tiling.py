"""The crop grid and the token counts, against what the published code gave and in exact arithmetic."""

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.inputs.tiling import _CANDIDATES, crop_grid, image_token_count, page_grid
from dsocr_core.resolution import PRESETS

VENDOR = Path(__file__).parents[3] / "shared" / "data" / "vendor"
needs_vendor_facts = pytest.mark.skipif(not VENDOR.is_dir(), reason="../shared/data/vendor is not here")
sides = st.integers(1, 6000)


@needs_vendor_facts
def test_every_recorded_size_has_the_published_grid() -> None:
    rows = json.loads((VENDOR / "grids.json").read_text())
    assert len(rows) == 317
    wrong = [row for row in rows if crop_grid(row[0], row[1]) != (row[2], row[3])]
    assert wrong == []


@needs_vendor_facts
def test_every_recorded_case_has_the_published_token_count() -> None:
    cases = json.loads((VENDOR / "preprocess.json").read_text())["cases"]
    for case in cases:
        preset = PRESETS[case["preset"]]
        grid = page_grid(preset, case["width"], case["height"])
        assert list(grid) == case["grid"]
        assert image_token_count(preset, grid) == case["image_tokens"], case


def test_order_within_a_tile_count_never_decides() -> None:
    """Halfway between two grids of as many tiles there is always a closer third one."""
    for a, b in combinations(_CANDIDATES, 2):
        if a[0] * a[1] == b[0] * b[1]:
            halfway = (Fraction(*a) + Fraction(*b)) / 2
            distance = abs(halfway - Fraction(*a))
            assert any(abs(halfway - Fraction(*other)) < distance for other in _CANDIDATES), (a, b)


@given(sides, sides)
def test_the_grid_is_a_candidate_of_the_closest_ratio(width: int, height: int) -> None:
    grid = crop_grid(width, height)
    if max(width, height) <= 640:
        assert grid == (1, 1)
        return
    distances = [abs(width / height - i / j) for i, j in _CANDIDATES]
    assert grid in _CANDIDATES
    assert abs(width / height - grid[0] / grid[1]) == min(distances)


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((640, 640), (1, 1)),
        ((641, 640), (2, 2)),
        ((1000, 1000), (2, 2)),
        ((1400, 1400), (3, 3)),
        ((700, 2100), (1, 3)),
    ],
)
def test_known_grids(size: tuple[int, int], grid: tuple[int, int]) -> None:
    assert crop_grid(*size) == grid


def test_the_contracts_example_counts_693_tokens() -> None:
    assert image_token_count(PRESETS["gundam"], (2, 2)) == 16 * 17 + 1 + 21 * 20 == 693


@pytest.mark.parametrize(("name", "count"), [("tiny", 73), ("small", 111), ("base", 273), ("large", 421)])
def test_presets_without_crops_ignore_the_page(name: str, count: int) -> None:
    assert image_token_count(PRESETS[name], page_grid(PRESETS[name], 3000, 500)) == count


def test_a_page_without_pixels_is_refused() -> None:
    with pytest.raises(ValueError, match="0 x 5"):
        crop_grid(0, 5)

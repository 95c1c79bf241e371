"""Grid and token counts against what the published code gave."""

import json

import pytest

from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.page.tiling import crop_grid, image_token_count, page_grid
from tests.support.paths import PUBLISHED


def test_every_published_grid_and_token_count() -> None:
    rows = json.loads((PUBLISHED / "grids.json").read_text(encoding="utf-8"))
    assert len(rows) > 300
    assert [row for row in rows if crop_grid(row[0], row[1]) != (row[2], row[3])] == []
    cases = json.loads((PUBLISHED / "preprocess.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 65
    for case in cases:
        preset = PRESETS[case["preset"]]
        grid = page_grid(case["width"], case["height"], preset)
        assert list(grid) == case["grid"], case
        assert image_token_count(preset, grid) == case["image_tokens"], case


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

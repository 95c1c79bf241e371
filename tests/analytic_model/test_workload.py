"""The shape of a page's work comes from the core's own tiling."""

import pytest

from analytic_model.workload import Workload, WorkloadError
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.page.tiling import image_token_count, page_grid

PAGES = [
    (300, 200), (640, 640), (641, 640), (1300, 1300), (1000, 1400), (1754, 1240), (9000, 900), (300, 9000),
]  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("width", "height"), PAGES)
def test_span_is_the_prompts(preset: str, width: int, height: int) -> None:
    workload = Workload.from_image(width, height, preset)
    grid = page_grid(width, height, PRESETS[preset])
    assert workload.grid == grid
    assert workload.image_tokens == image_token_count(PRESETS[preset], grid)


@pytest.mark.parametrize(
    ("views", "grid", "problem"),
    [
        ((), (1, 1), "views is empty"),
        ((0,), (1, 1), "views is 0"),
        ((8,), (1, 1), "views is 8"),
        ((640, 1024), (2, 2), "views has 2 sides; a grid of 2 x 2 has 5"),
        ((640, 1024), (0, 2), "grid is 0"),
        ((640, 1024), (1,), "grid is"),
        ((640, 512, 1024), (2, 1), "different sides"),
    ],
)
def test_views_and_grid_must_fit(views: tuple[int, ...], grid: tuple[int, int], problem: str) -> None:
    with pytest.raises(WorkloadError, match=problem):
        Workload(views, grid)

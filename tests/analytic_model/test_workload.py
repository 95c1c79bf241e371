"""The shape of a page's work comes from the core's own tiling."""

import pytest

from analytic_model.workload import Workload, WorkloadError


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

"""The figures of `test_compress`, computed by hand from the published rules."""

from dataclasses import replace

import pytest

from dsocr_core.page.compression import Compression, compression
from tests.support.results import make_result


@pytest.mark.parametrize(
    ("preset", "size", "grid", "tokens"),
    [
        ("tiny", (1000, 100), (1, 1), 64), ("small", (1000, 100), (1, 1), 100),
        ("base", (800, 1000), (1, 1), 204),  # 256 x 0.8 = 204.8
        ("large", (1000, 999), (1, 1), 399), ("gundam", (600, 600), (1, 1), 256),
        ("gundam", (1500, 1000), (3, 2), 170 + 600),
        ("base", (1, 1000), (1, 1), 0),  # the published code divides by zero here
    ],
)  # fmt: skip
def test_figures_are_those_worked_out_by_hand(preset: str, size: tuple, grid: tuple, tokens: int) -> None:
    result = make_result(image_size=size, grid=grid)
    result = replace(result, request=replace(result.request, preset=preset))
    assert compression(result) is None  # not asked for
    figures = compression(replace(result, text_tokens=250))
    assert figures == Compression(size, tokens, 250)
    assert figures.ratio == (round(250 / tokens, 2) if tokens else None)
    assert f"ratio {figures.ratio:g}" in str(figures) if tokens else "not defined" in str(figures)

"""Pixels and hashes against what the published code gave, torch-free."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.page.preprocess import prepare, tensor_sha256, to_bfloat16
from tests.support.paths import PUBLISHED
from tests.support.remote_code import published_page


@pytest.mark.parametrize("preset_name", sorted(PRESETS))
def test_every_published_hash(preset_name: str) -> None:
    cases = json.loads((PUBLISHED / "preprocess.json").read_text(encoding="utf-8"))["cases"]
    cases = [case for case in cases if case["preset"] == preset_name]
    assert len(cases) == 13
    preset = PRESETS[preset_name]
    for case in cases:
        page = prepare(Image.fromarray(published_page(case["width"], case["height"])), preset)
        assert list(page.grid) == case["grid"]
        assert page.image_size == (case["width"], case["height"])
        side = preset.view_size
        assert case["global_shape"] == [1, 3, side, side]
        assert page.global_view.shape == (side, side, 3)
        assert tensor_sha256(page.global_view[None]) == case["global_sha256"], case
        if len(page.tiles):
            assert case["crop_shape"] == [len(page.tiles), 3, *page.tiles.shape[1:3]]
            assert tensor_sha256(page.tiles) == case["crop_sha256"], case
        else:
            zeros = (1, 3, preset.base_size, preset.base_size)
            assert case["crop_shape"] == list(zeros)
            assert tensor_sha256(None, zeros) == case["crop_sha256"]


def test_tiles_go_row_by_row() -> None:
    """A 3 x 2 checker at exactly the tiles' size is not resampled: each tile is one colour."""
    colours = np.arange(10, 70, 10, dtype=np.uint8).reshape(2, 3)
    picture = np.repeat(np.repeat(colours, 640, 0), 640, 1)
    page = prepare(Image.fromarray(np.stack([picture] * 3, -1)), PRESETS["gundam"])
    assert page.grid == (3, 2)
    assert [sorted(set(tile.flatten().tolist())) for tile in page.tiles] == [[v] for v in range(10, 70, 10)]


@given(st.lists(st.floats(-(2.0**120), 2.0**120, width=32)))
@example([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 2**-8 - 2**-17])  # ties go to even
@settings(max_examples=50, deadline=None)
def test_bfloat16_rounds_as_torch_does(values: list[float]) -> None:
    torch = pytest.importorskip("torch")
    array = np.array(values, np.float32)
    expected = torch.from_numpy(array).to(torch.bfloat16).view(torch.uint16).numpy()
    assert (to_bfloat16(array) == expected).all()


@pytest.mark.parametrize(
    ("size", "preset", "grey"),
    [
        ((1, 2048), "base", True),
        ((1, 2047), "base", False),
        ((1, 2048), "large", False),
        ((1, 5000), "gundam", True),
        ((5000, 1), "gundam", True),
        ((1, 5000), "small", False),  # squeezed to a square, not padded
        ((3, 2000), "base", False),
    ],
)
def test_a_page_whose_side_rounds_to_no_pixel_is_read_as_grey(
    size: tuple[int, int], preset: str, grey: bool
) -> None:
    """As Pillow's `pad` does it for the published code, whose tiles still show the page."""
    page = prepare(Image.new("RGB", size, (255, 0, 0)), PRESETS[preset])
    assert page.image_size == size
    assert bool((page.global_view == 127).all()) is grey
    if PRESETS[preset].crop_mode:
        assert len(page.tiles) == 9 and (page.tiles == (255, 0, 0)).all()

"""The views a page becomes: the same bytes as the published code's tensors, by their hashes."""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr_core.inputs.preprocess import NORMALISED, bfloat16_bits, normalised, prepare, tensor_sha256
from dsocr_core.resolution import PRESETS

FACTS = Path(__file__).parents[3] / "shared" / "data" / "vendor" / "preprocess.json"
CASES = json.loads(FACTS.read_text())["cases"] if FACTS.is_file() else []


@cache
def pattern(width: int, height: int) -> Image.Image:
    """The test image whose recipe `preprocess.json` states."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    channels = [(x * 7 + y * 13 + k * 29 + (x * y) // 97) % 256 for k in range(3)]
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8))


@pytest.mark.skipif(not CASES, reason="../shared/data/vendor is not here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['preset']}-{case['width']}x{case['height']}")
def test_tensors_are_the_published_codes(case: dict) -> None:
    prepared = prepare(pattern(case["width"], case["height"]), PRESETS[case["preset"]])
    assert prepared.image_size == (case["width"], case["height"])
    assert list(prepared.grid) == case["grid"]
    side = prepared.global_view.shape[0]
    assert [1, 3, side, side] == case["global_shape"]
    assert tensor_sha256(prepared.global_view[None]) == case["global_sha256"]
    tiles = prepared.tiles
    if len(tiles):
        assert [len(tiles), 3, 640, 640] == case["crop_shape"]
        assert tensor_sha256(tiles) == case["crop_sha256"]
    else:
        assert tensor_sha256(None, case["crop_shape"]) == case["crop_sha256"]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=2.0**126), min_size=1))
def test_bf16_rounding_is_torchs(values: list[float]) -> None:
    array = np.array(values, np.float32)
    expected = torch.from_numpy(array).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(bfloat16_bits(array), expected)


def test_hash_is_of_the_tensor_that_torch_makes() -> None:
    views = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3), dtype=np.uint8)
    tensor = torch.from_numpy(views).permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.5).to(torch.bfloat16)
    expected = hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    assert tensor_sha256(views) == expected
    assert np.array_equal(torch.from_numpy(normalised(views)).to(torch.bfloat16).float(), tensor.float())


def test_black_white_and_the_middle() -> None:
    assert NORMALISED[0] == -1.0
    assert NORMALISED[255] == 1.0
    assert abs(NORMALISED[127] + NORMALISED[128]) < 1e-6


def test_tiles_are_cut_row_by_row() -> None:
    page = Image.new("RGB", (1280, 1920))
    for row in range(3):
        for column in range(2):
            page.paste(
                (row * 10, column * 10, 0), (column * 640, row * 640, column * 640 + 640, row * 640 + 640)
            )
    prepared = prepare(page, PRESETS["gundam"])
    assert prepared.grid == (2, 3)
    centres = [tuple(int(v) for v in tile[320, 320]) for tile in prepared.tiles]
    assert centres == [(row * 10, column * 10, 0) for row in range(3) for column in range(2)]


def test_small_squeezes_and_base_pads() -> None:
    page = Image.new("RGB", (200, 100), (255, 0, 0))
    assert (prepare(page, PRESETS["small"]).global_view == (255, 0, 0)).all()
    base = prepare(page, PRESETS["base"]).global_view
    assert tuple(base[0, 0]) == (127, 127, 127)
    assert tuple(base[512, 512]) == (255, 0, 0)

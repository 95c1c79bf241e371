"""The reference's preprocessing against what the published code gave (grids.json, preprocess.json)."""

import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.paths import PUBLISHED
from tests.support.remote_code import published_page, remote_module
from tests.support.seeded_weights import byte_tokenizer

PRESETS = {
    "tiny": (512, 512, False), "small": (640, 640, False), "base": (1024, 1024, False),
    "large": (1280, 1280, False), "gundam": (1024, 640, True),
}  # fmt: skip
TEXT = "\n<|grounding|>Convert the document to markdown."


@pytest.fixture(scope="module")
def image_inputs() -> ModuleType:
    return remote_module("image_inputs")


def test_candidates_are_those_of_the_published_set(image_inputs: ModuleType) -> None:
    pairs = {
        (i, j) for n in range(2, 10) for i in range(1, n + 1) for j in range(1, n + 1) if 2 <= i * j <= 9
    }
    assert list(image_inputs.GRIDS) == sorted(pairs, key=lambda pair: pair[0] * pair[1])


def test_grid_of_every_published_size(image_inputs: ModuleType) -> None:
    table = json.loads((PUBLISHED / "grids.json").read_text())
    assert len(table) == 317
    wrong = [row for row in table if image_inputs.choose_grid(row[0], row[1]) != (row[2], row[3])]
    assert wrong == []


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((640, 640), (1, 1)),  # both sides small: not cut
        ((641, 641), (2, 2)),  # 1/1 ties with 2/2 and 3/3; only 2 tiles x 2 are filled by half
        ((1100, 1100), (2, 2)),
        ((2000, 2000), (3, 3)),  # large enough for the later candidate
        ((700, 1400), (1, 2)),  # 1/2 ties with 2/4: 980,000 px < half of 8 tiles
        ((1400, 2800), (2, 4)),
    ],
)
def test_exact_ties_go_to_the_later_grid_only_when_the_page_fills_it(
    image_inputs: ModuleType, size: tuple[int, int], grid: tuple[int, int]
) -> None:
    assert image_inputs.choose_grid(*size) == grid


def _published_cases() -> list[Any]:
    if not PUBLISHED.is_dir():
        return []
    cases = json.loads((PUBLISHED / "preprocess.json").read_text())["cases"]
    return [pytest.param(case, id=f"{case['width']}x{case['height']}-{case['preset']}") for case in cases]


@pytest.mark.parametrize("case", _published_cases())
def test_tensors_of_every_published_case(image_inputs: ModuleType, case: dict[str, Any]) -> None:
    page = Image.fromarray(published_page(case["width"], case["height"]))
    tokenizer = byte_tokenizer()
    inputs = image_inputs.prepare_inputs(tokenizer, "<image>" + TEXT, page, *PRESETS[case["preset"]])
    assert inputs.images_spatial_crop.tolist() == [case["grid"]]
    assert inputs.images_seq_mask.sum().item() == case["image_tokens"]
    assert (inputs.input_ids == tokenizer.convert_tokens_to_ids("<image>")).equal(inputs.images_seq_mask)
    assert list(inputs.images_crop.shape) == case["crop_shape"]
    assert list(inputs.images_ori.shape) == case["global_shape"]
    assert _sha256(inputs.images_ori) == case["global_sha256"]
    assert _sha256(inputs.images_crop) == case["crop_sha256"]
    assert inputs.images_spatial_crop.device.type == "cpu"


def test_ids_are_bos_text_image_text(image_inputs: ModuleType) -> None:
    tokenizer = byte_tokenizer()
    page = Image.new("RGB", (20, 10))
    inputs = image_inputs.prepare_inputs(tokenizer, "  Read <image>\nthis. ", page, 512, 512, False)
    expected = (
        [0] + tokenizer.encode("Read ") + [tokenizer.convert_tokens_to_ids("<image>")] * 73
        + tokenizer.encode("\nthis.")
    )  # fmt: skip
    assert inputs.input_ids.tolist() == expected


def test_page_is_turned_upright_and_made_rgb(image_inputs: ModuleType, tmp_path: Path) -> None:
    image = Image.fromarray(np.arange(6 * 4, dtype=np.uint8).reshape(4, 6) * 10)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise to show
    image.save(tmp_path / "turned.png", exif=exif)
    page = image_inputs.load_page(tmp_path / "turned.png")
    assert (page.mode, page.size) == ("RGB", (4, 6))
    assert np.array_equal(np.asarray(page)[..., 0], np.rot90(np.asarray(image), -1))


@pytest.mark.parametrize(
    ("size", "tiles", "mode", "expected"),
    [
        ((1000, 500), 0, (1024, 640, True), 128),
        ((1000, 500), 2, (1024, 640, True), 328),
        ((1000, 500), 0, (1280, 1280, False), 200),
        ((1000, 500), 0, (640, 640, False), 100),
        ((1000, 500), 0, (512, 512, False), 64),
    ],
)
def test_valid_image_tokens(
    image_inputs: ModuleType, size: tuple[int, int], tiles: int, mode: tuple[int, int, bool], expected: int
) -> None:
    assert image_inputs.valid_image_tokens(size, tiles, *mode) == expected


def _sha256(tensor: torch.Tensor) -> str:
    assert tensor.dtype == torch.bfloat16
    return hashlib.sha256(tensor.contiguous().view(torch.int16).numpy().tobytes()).hexdigest()

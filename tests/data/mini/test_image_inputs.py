"""The reference's preprocessing against what the published code gave (grids.json, preprocess.json)."""

import hashlib
import json
from types import ModuleType
from typing import Any

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


def test_grid_of_every_published_size(image_inputs: ModuleType) -> None:
    table = json.loads((PUBLISHED / "grids.json").read_text())
    assert len(table) == 317
    wrong = [row for row in table if image_inputs.choose_grid(row[0], row[1]) != (row[2], row[3])]
    assert wrong == []


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


def _sha256(tensor: torch.Tensor) -> str:
    assert tensor.dtype == torch.bfloat16
    return hashlib.sha256(tensor.contiguous().view(torch.int16).numpy().tobytes()).hexdigest()

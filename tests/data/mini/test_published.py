"""The reference's pre- and post-processing against what the published code gave, in tests/published."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.published.remote_code import published_page, remote_module
from tests.support.paths import PUBLISHED
from tests.support.seeded_weights import EOS, byte_tokenizer

PRESETS = {
    "tiny": (512, 512, False), "small": (640, 640, False), "base": (1024, 1024, False),
    "large": (1280, 1280, False), "gundam": (1024, 640, True),
}  # fmt: skip
TEXT = "\n<|grounding|>Convert the document to markdown."


def published(name: str) -> Any:
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def test_grid_of_every_published_size() -> None:
    table, choose = published("grids"), remote_module("image_inputs").choose_grid
    assert len(table) == 317
    assert [row for row in table if choose(row[0], row[1]) != (row[2], row[3])] == []


@pytest.mark.parametrize(
    "case", published("preprocess")["cases"], ids=lambda of: f"{of['width']}x{of['height']}-{of['preset']}"
)
def test_tensors_of_every_published_case(case: dict[str, Any]) -> None:
    page, tokenizer = Image.fromarray(published_page(case["width"], case["height"])), byte_tokenizer()
    prepare, image = remote_module("image_inputs").prepare_inputs, tokenizer.convert_tokens_to_ids("<image>")
    inputs = prepare(tokenizer, f"  Read <image>{TEXT} ", page, *PRESETS[case["preset"]])
    assert inputs.images_spatial_crop.tolist() == [case["grid"]]
    # bos, text, the image's span, text
    span = [image] * case["image_tokens"]
    assert inputs.input_ids.tolist() == [0, *tokenizer.encode("Read "), *span, *tokenizer.encode(TEXT)]
    assert (inputs.input_ids == image).equal(inputs.images_seq_mask)
    for tensor, name in ((inputs.images_crop, "crop"), (inputs.images_ori, "global")):
        assert (list(tensor.shape), tensor.dtype) == (case[f"{name}_shape"], torch.bfloat16)
        content = tensor.contiguous().view(torch.int16).numpy().tobytes()
        assert hashlib.sha256(content).hexdigest() == case[f"{name}_sha256"]


@pytest.mark.parametrize("case", published("postprocess"), ids=lambda case: repr(case["text"][:40]))
def test_files_of_every_published_case(case: dict[str, Any], tmp_path: Path) -> None:
    results, size = remote_module("results"), (case["width"], case["height"])
    (tmp_path / "images").mkdir(parents=True)
    page = Image.new("RGB", size, "white")
    results.save_result_files(results.clean_output(case["text"], EOS), page, tmp_path)
    assert (tmp_path / "result.mmd").read_bytes().decode() == case["mmd"]
    crops = {path.name: list(Image.open(path).size) for path in (tmp_path / "images").iterdir()}
    assert crops == case["crops"]
    with Image.open(tmp_path / "result_with_boxes.jpg") as boxed:
        assert boxed.size == size


def test_hostile_coordinates_give_no_box() -> None:
    boxes_of = remote_module("results").pixel_boxes
    assert boxes_of("[[0, 0, 999, 999], [1, 2], [0, 0, 1, 1]]", (800, 600)) == [(0, 0, 800, 600)]
    for hostile in (
        "__import__('os').getcwd()", "[[1, 2, 3]]", "[" * 100_000, "[[1e999, 0, 1, 1]]",
        '[["a", "b", "c", "d"]]', "[[NaN, 0, 1, 1]]", "{}", "7",
    ):  # fmt: skip
        assert boxes_of(hostile, (800, 600)) == [], hostile[:40]

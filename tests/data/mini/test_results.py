"""The reference's post-processing against what the published code wrote (postprocess.json)."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from tests.support.paths import PUBLISHED
from tests.support.remote_code import remote_module
from tests.support.seeded_weights import EOS


@pytest.fixture(scope="module")
def results() -> ModuleType:
    return remote_module("results")


def _published_cases() -> list[dict[str, Any]]:
    return json.loads((PUBLISHED / "postprocess.json").read_text())


@pytest.mark.parametrize("case", _published_cases(), ids=lambda case: repr(case["text"][:40]))
def test_files_of_every_published_case(results: ModuleType, case: dict[str, Any], tmp_path: Path) -> None:
    _save(results, case["text"], (case["width"], case["height"]), tmp_path)
    assert (tmp_path / "result.mmd").read_bytes().decode() == case["mmd"]
    crops = {path.name: list(Image.open(path).size) for path in (tmp_path / "images").iterdir()}
    assert crops == case["crops"]
    with Image.open(tmp_path / "result_with_boxes.jpg") as boxed:
        assert boxed.size == (case["width"], case["height"])


@pytest.mark.parametrize(
    "coordinates",
    ["__import__('os').getcwd()", "[[1, 2, 3]]", "[" * 100_000, "[[1e999, 0, 1, 1]]",
     '[["a", "b", "c", "d"]]', "[[NaN, 0, 1, 1]]", "{}", "7"],
)  # fmt: skip
def test_hostile_coordinates_give_no_box(results: ModuleType, coordinates: str) -> None:
    assert results.pixel_boxes(coordinates, (800, 600)) == []


def test_boxes_before_a_bad_one_are_kept(results: ModuleType) -> None:
    assert results.pixel_boxes("[[0, 0, 999, 999], [1, 2], [0, 0, 1, 1]]", (800, 600)) == [(0, 0, 800, 600)]


def _save(results: ModuleType, text: str, size: tuple[int, int], directory: Path) -> None:
    (directory / "images").mkdir(parents=True)
    results.save_result_files(results.clean_output(text, EOS), Image.new("RGB", size, "white"), directory)

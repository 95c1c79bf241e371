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


def test_boxes_are_drawn_where_the_text_says(results: ModuleType, tmp_path: Path) -> None:
    page = Image.new("RGB", (999, 999), "white")
    boxed = results.draw_boxes(
        page, [("title", [(100, 200, 300, 400)]), ("text", [(500, 600, 700, 800)])], tmp_path
    )
    title, text = results.label_colour("title"), results.label_colour("text")
    assert boxed.getpixel((103, 300)) == title  # the fourth pixel of an outline of 4
    assert boxed.getpixel((104, 300)) != title
    assert boxed.getpixel((501, 700)) == text  # the second of 2
    assert boxed.getpixel((502, 700)) != text
    assert boxed.getpixel((50, 50)) == (255, 255, 255)


@pytest.mark.parametrize(
    "coordinates",
    ["__import__('os').getcwd()", "[[1, 2, 3]]", "[" * 100_000, "[[1e999, 0, 1, 1]]",
     '[["a", "b", "c", "d"]]', "[[NaN, 0, 1, 1]]", "{}", "7"],
)  # fmt: skip
def test_hostile_coordinates_give_no_box(results: ModuleType, coordinates: str) -> None:
    assert results.pixel_boxes(coordinates, (800, 600)) == []


def test_boxes_before_a_bad_one_are_kept(results: ModuleType) -> None:
    assert results.pixel_boxes("[[0, 0, 999, 999], [1, 2], [0, 0, 1, 1]]", (800, 600)) == [(0, 0, 800, 600)]


def test_far_and_reversed_boxes_do_not_stop_the_others(results: ModuleType, tmp_path: Path) -> None:
    boxes = "[[-1000000000, 0, 1000000000, 999], [900, 900, 1, 1], [0, 0, 500, 500]]"
    _save(results, f"<|ref|>image<|/ref|><|det|>{boxes}<|/det|>", (800, 600), tmp_path)
    assert [path.name for path in sorted((tmp_path / "images").iterdir())] == ["2.jpg"]


def test_line_drawing_is_drawn_and_a_hostile_one_is_not(results: ModuleType, tmp_path: Path) -> None:
    drawing = {
        "Line": {
            "line": ["(-10, 0) -- (10, 0)"],
            "line_type": ["--"],
            "line_endpoint": ["A: (-10, 0)", "B: (10, 0)"],
        }
    }
    _save(results, repr(drawing), (100, 100), tmp_path / "good")
    with Image.open(tmp_path / "good" / "geo.jpg") as image:
        assert image.size == (600, 600)
        assert max(image.getpixel((300, 300))) < 60  # y = 0 is the middle row
        assert min(image.getpixel((300, 200))) > 200
    _save(results, "__import__('os').mkdir('line_type')", (100, 100), tmp_path / "bad")
    assert not (tmp_path / "bad" / "geo.jpg").exists()
    assert (tmp_path / "bad" / "result_with_boxes.jpg").exists()


def _save(results: ModuleType, text: str, size: tuple[int, int], directory: Path) -> None:
    (directory / "images").mkdir(parents=True)
    results.save_result_files(results.clean_output(text, EOS), Image.new("RGB", size, "white"), directory)

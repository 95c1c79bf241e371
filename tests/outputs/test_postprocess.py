"""The texts of a result against the files that the published code wrote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.markup import END_MARKER, parse
from dsocr_core.outputs.postprocess import MAX_CROP_PAGES, clean_text, crops, result_mmd
from tests.support.paths import SHARED

FILE = SHARED / "data" / "vendor" / "postprocess.json"
CASES = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][-30:])
def test_markdown_is_the_published_one(case: dict) -> None:
    assert result_mmd(case["text"]) == case["mmd"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][-30:])
def test_crops_have_the_published_sizes(case: dict) -> None:
    areas = crops(parse(case["text"]), case["width"], case["height"])
    sizes = {f"{number}.jpg": [x2 - x1, y2 - y1] for number, (x1, y1, x2, y2) in areas.items()}
    assert sizes == case["crops"]


def test_end_marker_only_at_the_end() -> None:
    assert clean_text(f"  a{END_MARKER}b \n{END_MARKER}") == f"a{END_MARKER}b"
    assert clean_text("") == ""


def test_a_repeated_image_links_to_its_first() -> None:
    block = "<|ref|>image<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>"
    other = "<|ref|>image<|/ref|><|det|>[[0, 0, 99, 99]]<|/det|>"
    links = result_mmd(block + other + block).splitlines()
    assert links == ["![](images/0.jpg)", "![](images/1.jpg)", "![](images/0.jpg)"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["text", "image", "title"]), st.text("abc\n \\[]", max_size=5)), max_size=8
    )
)
def test_same_as_one_replacement_after_the_other(blocks: list[tuple[str, str]]) -> None:
    """The published order of work, spelt out: images first, then all others."""
    marks = [
        f"<|ref|>{label}<|/ref|><|det|>[[{i % 3}, 0, 9, 9]]<|/det|>" for i, (label, _) in enumerate(blocks)
    ]
    text = "".join(mark + body for mark, (_, body) in zip(marks, blocks, strict=True))
    expected, number = text, 0
    for mark in marks:
        if "<|ref|>image<|/ref|>" in mark:
            expected = expected.replace(mark, f"![](images/{number}.jpg)\n")
            number += 1
    for mark in marks:
        expected = expected.replace(mark, "")
    assert result_mmd("." + text + ".") == "." + expected + "."


def test_crops_by_hand() -> None:
    """A reversed box takes a number without a crop; other labels take none."""
    image, text = "<|ref|>image<|/ref|>", "<|ref|>text<|/ref|>"
    spans = parse(
        f"{image}<|det|>[[9, 9, 0, 0], [0, 0, 999, 500]]<|/det|>{text}<|det|>[[0, 0, 9, 9]]<|/det|>"
        f"{image}<|det|>[[0, 0, 0, 10]]<|/det|>{image}<|det|>[[-100, 0, 1099, 999]]<|/det|>"
    )
    assert crops(spans, 1000, 800) == {1: (0, 0, 1000, 400), 3: (-100, 0, 1100, 800)}


def test_crops_are_bounded() -> None:
    rows = ", ".join(["[0, 0, 999, 999]"] * 100_000)
    areas = crops(parse(f"<|ref|>image<|/ref|><|det|>[{rows}]<|/det|>"), 100, 100)
    assert len(areas) == MAX_CROP_PAGES
    far = parse("<|ref|>image<|/ref|><|det|>[[0, 0, 999999, 10], [0, 0, 999, 999]]<|/det|>")
    assert list(crops(far, 2000, 2000)) == [1]

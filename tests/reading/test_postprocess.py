"""The texts of a result against the files that the published code wrote."""

import json
import random
import re

import pytest

from dsocr_core.reading.markup import END_MARKER, Form, parse
from dsocr_core.reading.postprocess import MAX_CROP_PAGES, crops, result_mmd
from tests.support.paths import PUBLISHED

CASES = json.loads((PUBLISHED / "postprocess.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][-30:])
def test_markdown_and_sizes_of_crops_are_the_published_ones(case: dict) -> None:
    assert result_mmd(case["text"]) == case["mmd"]
    areas = crops(parse(case["text"]), case["width"], case["height"])
    sizes = {f"{number}.jpg": [x2 - x1, y2 - y1] for number, (x1, y1, x2, y2) in areas.items()}
    assert sizes == case["crops"]


PIECES = (
    "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|/ref|><|det|>", "image", "text", "a", "[[1, 2, 3, 4]]",
    "<|ref|>image<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>", "<|ref|>a<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>",
    "<|ref|>image<|/ref|><|det|>[]<|/det|>", "<|re", "f|>", "<|ref", "|>", "\\colon", "eqq", "\\coloneqq",
    "\\eqqcolon", "![](images/0.jpg)\n", " ", "\n", END_MARKER,
)  # fmt: skip
DET_PIECES = (
    *PIECES, "<PAGE>", "[", "]", "[1, 2, 3, 4]", "1", "-", "<|det|>image [1, 2, 3, 4]<|/det|>",
    "<|det|>text [5, 6, 7, 8]<|/det|>", "<|ref|> image<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>",
)  # fmt: skip
REF_MARK = re.compile(r"<\|ref\|>(.*?)<\|/ref\|><\|det\|>.*?<\|/det\|>", re.DOTALL)
DET_MARK = re.compile(r"<\|det\|>\s*([A-Za-z_][\w-]*)\s*\[[^\]]+\]\s*<\|/det\|>")


def published(text: str, det: bool = False, prefix: str = "") -> str:
    """The published order of work, spelt out: of all marks the images' first, each in the whole text."""
    text = text.removesuffix(END_MARKER).strip()
    marks = list(REF_MARK.finditer(text)) + (list(DET_MARK.finditer(text)) if det else [])
    images = [
        mark[0] for mark in marks if "<|ref|>image<|/ref|>" in mark[0] or (det and mark[1].strip() == "image")
    ]
    for number, image in enumerate(images):
        text = text.replace(image, f"![](images/{prefix}{number}.jpg)\n")
    for mark in marks:
        if mark[0] not in images:
            text = text.replace(mark[0], "").replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
    return text


def published_pages(text: str, count: int) -> str:
    """The same page by page, with the text before the first page, which the published code leaves out."""
    head, *pages = text.removesuffix(END_MARKER).strip().split("<PAGE>")
    made = [
        published(page.strip() + END_MARKER, True, f"page_{number}_") if number < count else page.strip()
        for number, page in enumerate(pages)
    ]
    written = "<PAGE>\n" + "\n<PAGE>\n".join(made) if pages else ""
    return "\n".join(part for part in (head.strip(), written) if part)


def test_60_000_hostile_texts_are_written_as_published() -> None:
    rng = random.Random(0)
    for number in range(60_000):
        count = (None, None, 0, 1, 3)[number % 5]
        if number % 5 == 0:
            text = "".join(rng.choices(PIECES, k=rng.randint(1, 24)))
            assert result_mmd(text) == published(text), text
            continue
        text = "".join(rng.choices(DET_PIECES, k=rng.randint(1, 24)))
        expected = published(text, True) if count is None else published_pages(text, count)
        assert result_mmd(text, Form("det", count)) == expected, (text, count)


def test_many_marks_within_marks_take_little_time() -> None:
    marks = "".join(f"<|ref|>{i}<|ref|>{i}<|/ref|><|det|>[]<|/det|>" for i in range(60_000))
    assert result_mmd(marks) == marks


def test_crops_of_the_first_form_are_numbered_first() -> None:
    """A flat list of four numbers is one box; a nested list under a label is no markup there."""
    text = (
        "<|det|>image [0, 0, 100, 100]<|/det|>x<|det|>image [[0, 0, 9, 9]]<|/det|>"
        "<|det|>1image [0, 0, 9, 9]<|/det|>"
        "<|ref|>image<|/ref|><|det|>[[0, 0, 200, 200]]<|/det|>"
        "<|ref|>image<|/ref|><|det|>[0, 0, 300, 300]<|/det|>"
    )
    spans = parse(text, Form("det"))
    assert crops(spans, 999, 999) == {0: (0, 0, 200, 200), 1: (0, 0, 300, 300), 2: (0, 0, 100, 100)}
    assert result_mmd(text, Form("det")) == (
        "![](images/2.jpg)\nx<|det|>image [[0, 0, 9, 9]]<|/det|><|det|>1image [0, 0, 9, 9]<|/det|>"
        "![](images/0.jpg)\n![](images/1.jpg)\n"
    )


def test_crops_are_bounded() -> None:
    rows = ", ".join(["[0, 0, 999, 999]"] * 100_000)
    areas = crops(parse(f"<|ref|>image<|/ref|><|det|>[{rows}]<|/det|>"), 100, 100)
    assert len(areas) == MAX_CROP_PAGES
    far = parse("<|ref|>image<|/ref|><|det|>[[0, 0, 999999, 10], [0, 0, 999, 999]]<|/det|>")
    assert list(crops(far, 2000, 2000)) == [1]

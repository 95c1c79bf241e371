"""Accuracy against the truth, by hand-computed values; the truth's files, bounded and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dsocr_core.review.accuracy as module
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.accuracy import (
    TruePage,
    Truth,
    TruthError,
    accuracy,
    page_truth,
    read_truth,
    sample_truth,
)
from tests.support.planted import sample_results
from tests.support.review_sides import markup, texts

# On a page of 999 x 999 pixels a pixel is a step of the model's coordinates.
BLOCKS = [
    {"label": "title", "box": [100, 100, 300, 200], "text": "Alpha"},
    {"label": "text", "box": [100, 300, 300, 400], "text": "beta gamma"},
    {"label": "image", "box": [400, 300, 600, 400], "text": ""},
]
TRUE = {"page.png": {"width": 999, "height": 999, "blocks": BLOCKS}}
WRITTEN = (
    ("title", (100, 100, 300, 200), "# Alpha"),
    ("text", (100, 300, 300, 400), "beta gamma"),
    ("image", (400, 300, 600, 400), ""),
)


def truth_of(data: object, folder: Path) -> Truth:
    (folder / "truth.json").write_text(json.dumps(data), encoding="utf-8")
    return read_truth(folder / "truth.json")


@pytest.fixture
def true(tmp_path: Path) -> TruePage:
    return truth_of(TRUE, tmp_path)["page.png"]


def side(blocks: object) -> OcrResult:
    page = texts(markup(blocks), image_size=(999, 999))  # type: ignore[arg-type]
    assert page.a is not None
    return page.a


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (WRITTEN, (1, 0, 0)),
        # One of three is not there: 2 * 2 / (3 + 2); "Alpha", newline, newline of 17 characters missing.
        (WRITTEN[1:], (0.8, 7 / 17, 0)),
        # Found, under another label: 2 * 2 / 6, still placed.
        ((("text", *WRITTEN[0][1:]), *WRITTEN[1:]), (4 / 6, 2 / 17, 0)),
        # 40 of 200 to the right: IoU 160 / 240, below 0.75.
        ((("title", (140, 100, 340, 200), "# Alpha"), *WRITTEN[1:]), (4 / 6, 0, 0)),
        # Picture between: one deletion and one insertion of three.
        ((WRITTEN[0], WRITTEN[2], WRITTEN[1]), (1, 0, 2 / 3)),
        ((WRITTEN[0], ("text", (100, 300, 300, 400), "beta gamna"), WRITTEN[2]), (1, 1 / 17, 0)),
    ],
)
def test_accuracy_figures_are_as_worked_out_by_hand(
    blocks: object, expected: tuple[float, float, float], true: TruePage
) -> None:
    found = accuracy(side(blocks), true)
    assert found is not None
    figures = (found.box_f1, found.character_error_rate, found.order_distance)
    assert figures == pytest.approx(expected)


def test_what_cannot_be_counted_is_none(true: TruePage) -> None:
    plain = texts("Alpha\n\nbeta gamma").a
    found = accuracy(plain, true)
    assert found is not None
    assert (found.box_f1, found.character_error_rate, found.order_distance) == (None, 0, None)
    assert accuracy(plain, None) is None
    assert accuracy(None, true) is None


def test_omnidocbench_annotations_are_read(tmp_path: Path, true: TruePage) -> None:
    def block(category: str, box: list[int], order: int | None, **values: object) -> dict[str, object]:
        x1, y1, x2, y2 = box
        poly = [x1, y1, x2, y1, x2, y2, x1, y2]
        return {"category_type": category, "poly": poly, "order": order, "ignore": False, **values}

    page = {
        "layout_dets": [
            block("figure", [400, 300, 600, 400], 3),
            block("text_block", [100, 300, 300, 400], 2, text="beta gamma"),
            block("title", [100, 100, 300, 200], 1, text="Alpha"),
            block("page_number", [900, 900, 950, 950], None, text="7"),
            block("text_block", [0, 0, 10, 10], 0, text="hidden") | {"ignore": True},
        ],
        "page_info": {"image_path": "images/page.png", "width": 999, "height": 999},
    }
    assert truth_of([page], tmp_path) == {"page.png": true}


def test_the_samples_truth_is_found_by_file_name_and_size() -> None:
    truth = sample_truth()
    assert len(truth) == 14
    ours, _ = sample_results()[0]
    page = texts(ours.text_raw, image_size=ours.image_size, request=ours.request)
    found = page_truth(truth, page)
    assert found == truth["01-letter.png"]
    score = accuracy(page.a, found)
    assert score is not None and score.box_f1 is not None and score.box_f1 > 0.5
    assert page_truth(truth, texts(ours.text_raw, request=ours.request)) is None  # of another size


@pytest.mark.parametrize(
    "data",
    [3, "x", [1], {"a": 1}, {"a": {"width": 1, "height": 1, "blocks": [{"label": "x"}]}},
     {"a": {"width": 0, "height": 1, "blocks": []}},
     {"a": {"width": 9, "height": 9, "blocks": [{"label": "t", "box": [0, 0, 1e999, 1], "text": ""}]}},
     [{"page_info": {}, "layout_dets": []}]],
)  # fmt: skip
def test_foreign_files_are_refused_in_one_line(tmp_path: Path, data: object) -> None:
    with pytest.raises(TruthError, match=r"truth\.json: neither") as caught:
        truth_of(data, tmp_path)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TruthError, match="cannot be read"):
        read_truth(tmp_path / "none.json")
    (tmp_path / "t.json").write_text("[" * 100_000)
    with pytest.raises(TruthError, match="nested too deeply"):
        read_truth(tmp_path / "t.json")
    monkeypatch.setattr(module, "FILE_LIMIT", 10)
    with pytest.raises(TruthError, match="at most 10 are read"):
        read_truth(tmp_path / "t.json")

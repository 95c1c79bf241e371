"""Every kind of difference on one page, with its evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import KINDS, Difference, Kind, ParityReport
from tests.support.results import make_result
from tests.support.review_sides import BLOCKS, changed, markup

BROKEN = "\n\n<|ref|>text<|/ref|><|det|>[[1, 2]]<|/det|>\n"


def texts(ours: str, vendor: str | None = None, **changes: object) -> ParityReport:
    """A page whose sides wrote these texts; `changes` concern A alone."""
    a = replace(make_result(ours, "eager"), **changes)
    return compare_results(a, make_result(markup() if vendor is None else vendor, "vendor"))


def only(report: ParityReport, kind: Kind) -> Difference:
    """The one difference of a page."""
    (difference,) = report.differences
    assert difference.kind == kind
    return difference


SHIFTED = [(label, (x1, y1 + 10, x2, y2 + 10), text) for label, (x1, y1, x2, y2), text in BLOCKS]
TURNED = (*BLOCKS[1:3], BLOCKS[0], *BLOCKS[3:])
COLUMNS = "<|ref|>text<|/ref|><|det|>[[1, 1, 99, 20], [1, 30, 99, 50]]<|/det|>\n{}"


@pytest.mark.parametrize(
    ("ours", "kind", "within", "where", "evidence", "words"),
    [
        # 30 of 999 down: two corners by 3.003 %, and (100 - 30) / (100 + 30) of both boxes' height in common.
        (markup(changed(1, box=(100, 180, 900, 280))), "moved", False, ((1,), (1,)),
         {"iou": round(70 / 130, 4), "shift_percent": round(3000 / 999, 3)},
         "box 2 (text) by 3 % of the page's side"),
        (markup(SHIFTED), "moved", True, ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4)),
         {"shift_percent": 1.001}, "5 boxes by at most 1 % of the page's side"),
        (markup(changed(0, label="sub_title")), "relabelled", True, ((0,), (0,)),
         {"label_a": "sub_title", "label_b": "title", "iou": 1.0, "shift_percent": 0.0},
         "box 1 is sub_title in A and title in B"),
        # c -> x, and "the" -> "a": three edits more.
        (markup(changed(2, text="the sexond paragraph of a page")), "text", False, ((2,), (2,)),
         {"error_rate": round(4 / 32, 4), "digits": False},
         "box 3 (text), sexond -> second; a -> the"),
        (markup(TURNED), "order", True, ((), ()), {}, "of 5 boxes that both have"),
    ],
)  # fmt: skip
def test_every_kind_has_its_place_and_evidence(
    ours: str, kind: Kind, within: bool, where: tuple, evidence: dict[str, object], words: str
) -> None:
    found = only(texts(ours), kind)
    assert (found.within, found.evidence, found.words) == (within, evidence, words)
    assert (found.boxes_a, found.boxes_b) == where and found.where == "both"


def test_boxes_of_one_block_are_one_difference_of_text() -> None:
    found = only(texts(COLUMNS.format("12 eggs"), COLUMNS.format("13 eggs")), "text")
    assert found.boxes_a == found.boxes_b == (0, 1) and found.texts == ("12 eggs", "13 eggs")


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("Hello world", "Hello word", "world -> word"),
        (markup() + BROKEN + "one", markup() + BROKEN + "two", "outside of boxes, one -> two"),
        ("<|ref|>title<|/ref|><|det|>[[169", "<|ref|>title<|/ref|><|det|>[[269", "169 -> 269"),
    ],
)
def test_text_that_no_box_stands_for_is_compared_by_itself(a: str, b: str, words: str) -> None:
    report = texts(a, b)
    assert report.verdict == "differs" and only(report, "text").words == words


def test_what_is_beyond_tolerance_comes_first_then_the_gravest() -> None:
    blocks = [*changed(1, text="1 word")[:4], (BLOCKS[4][0], (110, 650, 900, 750), "x")]
    report = texts(markup([(*BLOCKS[0][:2], "word"), *blocks[1:]]))
    order = [(item.within, list(KINDS).index(item.kind)) for item in report.differences]
    assert order == sorted(order) and len(order) == 4
    assert report.differences[0].words.startswith("box 2"), "digits first"

"""Boxes in pixels and their one-to-one matching, by hand and as invariants."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.reading import boxes as boxes_module
from dsocr_core.reading.boxes import match_boxes
from dsocr_core.reading.markup import Box, Coordinates, page_boxes, parse

Rows = Sequence[tuple[str, Coordinates]]


def make(*rows: tuple[str, Coordinates]) -> tuple[Box, ...]:
    """Boxes on a page of 999 x 999 pixels, where a coordinate is a pixel."""
    text = "".join(f"<|ref|>{label}<|/ref|><|det|>[{list(box)}]<|/det|>t" for label, box in rows)
    return page_boxes(parse(text), (999, 999))


def test_boxes_are_matched_moved_relabelled_or_on_one_side_only() -> None:
    ours = make(
        ("title", (0, 0, 500, 100)), ("text", (0, 200, 500, 300)), ("text", (0, 400, 500, 500)),
        ("x", (0, 600, 9, 609)),
    )  # fmt: skip
    vendor = make(
        ("title", (0, 0, 519, 100)), ("text", (0, 221, 500, 321)), ("table", (0, 400, 500, 500)),
        ("y", (900, 900, 950, 950)),
    )  # fmt: skip
    rows = match_boxes(ours, vendor)
    assert [row.state for row in rows] == ["matched", "moved", "relabelled", "only_a", "only_b"]
    assert rows[0].shift_percent == pytest.approx(1900 / 999)
    assert rows[1].iou == pytest.approx(79 / 121)
    assert rows[3].b is None and rows[3].iou is None and rows[3].shift_percent is None
    assert rows[4].a is None and rows[4].b == vendor[3]


LINE = ("text", (100, 100, 900, 112))
PLACE = (100, 100, 500, 500)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # A thin line that moved off itself is still found, under its own label and near.
        ([LINE], [("text", (100, 130, 900, 142))], ["moved"]),
        ([LINE], [("title", (100, 130, 900, 142))], ["only_a", "only_b"]),
        ([LINE], [("text", (100, 200, 900, 212))], ["only_a", "only_b"]),
        # A box without area is equal to itself.
        ([("text", (5, 5, 5, 5))], [("text", (5, 5, 5, 5))], ["matched"]),
        # Labels tell boxes of one place apart.
        ([("image", PLACE), ("image_caption", PLACE)],
         [("image_caption", (101, 100, 500, 500)), ("image", (100, 100, 500, 501))], ["matched"] * 2),
        # A neighbour of the same label does not win over the same place.
        ([("text", (0, 0, 500, 100))], [("title", (0, 0, 500, 100)), ("text", (0, 75, 500, 175))],
         ["relabelled", "only_b"]),
    ],
)  # fmt: skip
def test_labels_and_nearness_decide(a: Rows, b: Rows, expected: list[str]) -> None:
    assert [row.state for row in match_boxes(make(*a), make(*b))] == expected


numbers = st.integers(0, 40).map(lambda value: value * 25.0)
any_boxes = st.lists(
    st.tuples(st.sampled_from(["text", "title"]), st.tuples(numbers, numbers, numbers, numbers)), max_size=12
)


@given(any_boxes, any_boxes)
def test_one_to_one_and_complete(a: list[tuple[str, Coordinates]], b: list[tuple[str, Coordinates]]) -> None:
    ours, vendor = make(*a), make(*b)
    rows = match_boxes(ours, vendor)
    assert [row.a for row in rows if row.a] == list(ours)
    assert sorted(row.b.index for row in rows if row.b) == list(range(len(vendor)))
    for row in rows:
        if row.a and row.b:
            assert row.iou is not None and 0 <= row.iou <= 1
            assert (row.state == "relabelled") == (row.a.label != row.b.label)
    assert rows == match_boxes(ours, vendor)


def test_any_number_of_boxes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal boxes find each other without being compared; of the others, so many are."""

    def grid(count: int, offset: float = 0.0) -> tuple[Box, ...]:
        rows = (("text", (i % 997 + offset, i // 997, i % 997 + 2, i // 997 + 2)) for i in range(count))
        return make(*rows)

    assert boxes_module.MATCH_LIMIT <= 2000
    started = time.process_time()
    assert len(match_boxes(grid(1000), grid(1000, 0.5))) >= 1000
    assert time.process_time() - started < 2
    monkeypatch.setattr(boxes_module, "MATCH_LIMIT", 100)
    assert {row.state for row in match_boxes(grid(10_000), grid(10_000))} == {"matched"}
    rows = match_boxes(grid(2000), grid(3000, 0.5))
    assert sum(row.a is not None for row in rows) == 2000 and sum(row.b is not None for row in rows) == 3000
    assert sum(bool(row.a and row.b) for row in rows) <= 100

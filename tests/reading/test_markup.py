"""The span scanner against the published pattern, on well-formed, damaged and hostile text."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr_core.reading.markup import Form, Span, page_boxes, page_notes, parse, pixel_corners

PUBLISHED = re.compile(r"<\|ref\|>(.*?)<\|/ref\|><\|det\|>(.*?)<\|/det\|>", re.DOTALL)
PIECES = [
    "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|/ref|><|det|>", "[[1, 2, 3, 4]]", "text", "\n",
    " ", "[[", "<|", "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4], [5, 6, 7, 8]]<|/det|>",
]  # fmt: skip
DET_PIECES = [*PIECES, "<|det|>title [1, 2, 3, 4]<|/det|>", "<|det|>title", "[1, 2, 3, 4]", "]", "<PAGE>"]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@settings(max_examples=500)
def test_closed_spans_are_those_of_the_published_pattern(text: str) -> None:
    found = [(span.start, span.end, span.label) for span in parse(text)]
    assert found == [(match.start(), match.end(), match[1]) for match in PUBLISHED.finditer(text)]


@given(
    st.one_of(st.lists(st.sampled_from(DET_PIECES), max_size=25).map("".join), st.text()),
    st.sampled_from([Form(), Form("det")]),
)
@settings(max_examples=300)
def test_spans_and_their_texts_tile_the_text(text: str, form: Form) -> None:
    spans = parse(text, form)
    head = text[: spans[0].start] if spans else text
    assert head + "".join(text[span.start : span.end] + span.text for span in spans) == text
    assert all(span.start < span.end and (span.boxes or span.malformed) for span in spans)


@pytest.mark.parametrize(
    ("written", "label", "boxes", "reason"),
    [
        ("text [1, 2, 3, 4]", "text", ((1, 2, 3, 4),), None),
        ("\n_a-1\t[1, 2, 3, 4]\n", "_a-1", ((1, 2, 3, 4),), None),
        ("text [[1, 2, 3, 4]", "text", (), "coordinates are not a list of numbers"),
        ("text [1, 2, 3]", "text", (), "box 1 is not four numbers"),
        ("text [1, 2, 3, 4, 5, 6, 7, 8]", "text", (), "box 1 is not four numbers"),
        ("text [__import__('os')]", "text", (), "coordinates are not a list of numbers"),
    ],
)
def test_the_second_form_by_hand(written: str, label: str, boxes: tuple, reason: str | None) -> None:
    (first,) = parse("<|det|>a[<|ref|>x<|/ref|><|det|>1]<|/det|>", Form("det"))
    assert (first.markup, first.label, first.start) == ("ref", "x", 9)  # whole, it wins
    text = f"a<|det|>{written}<|/det|>b"
    span = Span(label, boxes, 1, len(text) - 1, "b", reason, markup="det")
    assert parse(text, Form("det")) == (span,)
    assert parse(text) == ()


def test_boxes_lie_on_the_page_whose_mark_is_before_them() -> None:
    """Of two pages three came back, after a block that stands on none."""
    block = "<|det|>text [0, 0, 999, 999]<|/det|>"
    text = f"{block}head<PAGE>\n{block}one<PAGE>{block}two{block}too<PAGE>{block}three"
    form = Form("det", 2)
    spans = parse(text, form)
    assert [(span.text, span.page, bool(span.boxes)) for span in spans] == [
        ("head", 0, False), ("one", 0, True), ("two", 1, True), ("too", 1, True), ("three", 2, False),
    ]  # fmt: skip
    assert all(text[span.start : span.end] == block for span in spans)
    boxes = page_boxes(spans, (100, 50), (30, 40))
    assert [(box.page, box.x2, box.y2) for box in boxes] == [(0, 100, 50), (1, 30, 40), (1, 30, 40)]
    assert page_notes(text, form) == ("3 pages came back of 2", "40 characters before the first <PAGE>")
    assert page_notes("<PAGE>a<PAGE>", form) == page_notes(text, Form("det")) == ()


NUMBERS, FOUR, BOUNDS = "not a list of numbers", "box 1 is not four numbers", "box 1 lies out of all bounds"


@pytest.mark.parametrize(
    ("coordinates", "reason"),
    [
        ("oops", NUMBERS), ("", NUMBERS), ("[[NaN, 2, 3, 4]]", NUMBERS), ("[" * 100_000, NUMBERS),
        ("[[1" + "0" * 9000 + ", 2, 3, 4]]", NUMBERS), ("__import__('os').system('true')", NUMBERS),
        ("[[1, 2, 3, 4]] + [[5, 6, 7, 8]]", NUMBERS), ("[[1, 2, 3]]", FOUR), ("[1, 2, 3, 4]", FOUR),
        ('[["1", 2, 3, 4]]', FOUR), ("[[true, 2, 3, 4]]", FOUR), ("[[null, 2, 3, 4]]", FOUR),
        ("[[1, 2, 3, 4], [1]]", "box 2 is not four numbers"), ("[[1e999, 2, 3, 4]]", BOUNDS),
        ("[[1, 2, 3, -1000001]]", BOUNDS), ("[[1" + "0" * 400 + ", 2, 3, 4]]", BOUNDS),
        ("[]", "no coordinates"), ("{}", "not a list"), ("7", "not a list"),
    ],
    ids=lambda value: value[:20],
)  # fmt: skip
def test_malformed_coordinates_have_a_reason(coordinates: str, reason: str) -> None:
    (span,) = parse(f"<|ref|>text<|/ref|><|det|>{coordinates}<|/det|>after")
    assert span.malformed is not None and reason in span.malformed
    assert span.label == "text" and span.text == "after"
    assert len(span.boxes) == (1 if "box 2" in reason else 0)


@pytest.mark.parametrize(
    ("unit", "tail"),
    [
        ("<|ref|>", ""), ("<|ref|>text<|/ref|>", ""), ("<|ref|>text<|/ref|><|det|>", ""),
        ("<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>some text\n", ""), ("<|ref|>", "<|/ref|><|det|>"),
        ("<|ref|><|/det|>", ""), ("<|/ref|><|det|>", "<|ref|>"), ("<|/det|>", "<|ref|>"), ("<|det|>a[", ""),
        ("<|det|>a[", f"]{' ' * 60_000}"), ("<|det|>a[1, 2, 3, 4]<|/det|><PAGE>", ""),
    ],
)  # fmt: skip
def test_linear_on_hostile_text(unit: str, tail: str) -> None:
    """Eight times the text may take about eight times as long; quadratic would take 64."""

    def seconds(count: int) -> float:
        text = unit * count + tail
        started = time.process_time()
        parse(text, Form("det", 9))
        return time.process_time() - started

    eighth = min(seconds(3_000) for _ in range(3))
    assert any(seconds(24_000) < 24 * eighth + 0.05 for _ in range(3))


def test_pixels_are_cut_towards_zero_and_reversed_corners_swapped() -> None:
    assert pixel_corners((10, 20, 500, 60), 800, 600) == (8, 12, 400, 36)
    assert pixel_corners((-5, 0, 2000, 999), 800, 600) == (-4, 0, 1601, 600)
    rows = ", ".join(f"[{i % 999}, 0, 999, 5]" for i in range(100_000))
    text = f"<|ref|>a<|/ref|><|det|>[[900, 900, 100, 100], {rows}]<|/det|>one <｜end▁of▁sentence｜>"
    started = time.process_time()
    box, *boxes = page_boxes(parse(text), (800, 600))
    assert time.process_time() - started < 5 and len(boxes) == 100_000
    assert (box.x1, box.y1, box.x2, box.y2, box.text) == (80, 60, 720, 540, "one")
    assert box.coordinates == (900, 900, 100, 100)

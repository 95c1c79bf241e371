"""Boxes drawn on a page."""

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from dsocr_core.reading import render
from dsocr_core.reading.markup import Box, Span, page_boxes
from dsocr_core.reading.render import MAX_DRAWN, draw_boxes, label_colour

WHITE = (255, 255, 255)


def boxes(label: str, *coordinates: tuple[float, float, float, float]) -> tuple[Box, ...]:
    """On a page of 999 x 999 pixels."""
    return page_boxes([Span(label, coordinates, 0, 1, "")], (999, 999))


def page() -> Image.Image:
    return Image.new("RGB", (999, 999), WHITE)


@pytest.mark.parametrize(("label", "width"), [("title", 4), ("text", 2), ("never seen", 2)])
def test_outline_and_fill(label: str, width: int) -> None:
    drawn = np.asarray(draw_boxes(page(), boxes(label, (100, 200, 300, 400))))
    colour = np.array(label_colour(label))
    row = drawn[300]
    assert [x for x in range(999) if (row[x] == colour).all()] == [
        *range(100, 100 + width),
        *range(301 - width, 301),
    ]
    inside = 255 - (255 - colour) * 20 / 255
    assert np.abs(row[200] - inside).max() <= 1
    assert (row[99] == WHITE).all() and (row[301] == WHITE).all()


def test_the_label_is_above_and_stays_on_the_page() -> None:
    drawn = np.asarray(draw_boxes(page(), boxes("text", (100, 200, 300, 400))))
    above = drawn[185:199, 100:140]
    assert (above != 255).any() and (drawn[:184] == 255).all()
    at_top = np.asarray(draw_boxes(page(), boxes("text", (100, 5, 300, 400))))
    assert (at_top[0:4, 100:140] != 255).any()


def test_the_page_itself_is_left_alone() -> None:
    source = page()
    draw_boxes(source, boxes("text", (0, 0, 999, 999)))
    assert source.tobytes() == page().tobytes()


@pytest.mark.parametrize("label", ["\ud800", "a\nb", "漢字", "\u0000", "x" * 100_000, ""])
def test_strange_labels_are_drawn_in_their_colour(label: str) -> None:
    drawn = draw_boxes(page(), boxes(label, (100, 200, 300, 400)))
    assert drawn.getpixel((100, 300)) == label_colour(label)


@pytest.fixture
def rectangles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int, int]]:
    """Corners of what Pillow was told to draw: it walks every pixel of a line, in sight or not."""
    drawn = []
    draw = ImageDraw.ImageDraw.rectangle

    def noted(pen: ImageDraw.ImageDraw, corners: tuple[int, int, int, int], **style: Any) -> None:
        drawn.append(corners)
        draw(pen, corners, **style)

    monkeypatch.setattr(ImageDraw.ImageDraw, "rectangle", noted)
    return drawn


def test_far_and_empty_boxes(rectangles: list[tuple[int, int, int, int]]) -> None:
    far = boxes("text", (-1e6, -1e6, 1e6, 1e6), (5, 5, 5, 5), (1e6, 1e6, 1e6, 1e6), (-1e6, 500, 1e6, 500))
    drawn = draw_boxes(page(), far)
    assert len(rectangles) == 2 * len(far)  # each with its label's ground
    outlines = np.array(rectangles[::2])
    assert outlines.min() >= -20 and outlines.max() <= 1020
    assert drawn.getpixel((500, 500)) == label_colour("text")


def test_any_number_of_boxes_is_bounded(
    rectangles: list[tuple[int, int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_DRAWN <= 2000
    monkeypatch.setattr(render, "MAX_DRAWN", 50)
    draw_boxes(page(), boxes("text", *[(0, 0, 999, 999)] * 10_000))
    assert len(rectangles) == 2 * 50

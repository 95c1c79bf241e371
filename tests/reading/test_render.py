"""Boxes drawn on a page."""

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from dsocr_core.reading import artifacts
from dsocr_core.reading.artifacts import MAX_DRAWN, draw_boxes, label_colour
from dsocr_core.reading.markup import Box, Span, page_boxes

WHITE = (255, 255, 255)


def boxes(label: str, *coordinates: tuple[float, float, float, float]) -> tuple[Box, ...]:
    """On a page of 999 x 999 pixels."""
    return page_boxes([Span(label, coordinates, 0, 1, "")], (999, 999))


def page() -> Image.Image:
    return Image.new("RGB", (999, 999), WHITE)


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
    given = page()
    drawn = draw_boxes(given, far)
    assert given == page()
    assert len(rectangles) == 2 * len(far)  # each with its label's ground
    outlines = np.array(rectangles[::2])
    assert outlines.min() >= -20 and outlines.max() <= 1020
    assert drawn.getpixel((500, 500)) == label_colour("text")


def test_any_number_of_boxes_is_bounded(
    rectangles: list[tuple[int, int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_DRAWN <= 2000
    monkeypatch.setattr(artifacts, "MAX_DRAWN", 50)
    draw_boxes(page(), boxes("text", *[(0, 0, 999, 999)] * 10_000))
    assert len(rectangles) == 2 * 50

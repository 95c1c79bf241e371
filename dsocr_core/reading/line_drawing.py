"""`geo.jpg`: the line drawing that the published `save_results` makes of a text about a figure.

    {'Line': {'line': ['(x, y) -- (x, y)', ...],
              'line_type': ['--', ...],
              'line_endpoint': ['A: (x, y)', ...]}}

The published code runs the text as Python and draws with matplotlib; here it is read as literals and drawn on
the same 600 x 600 pixels: axes from -15 to 15, lines with a dot at both ends, endpoints with their names.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

MARK = "line_type"
"""The published code tries every text that contains this."""

MOST_CHARACTERS = 100_000
MOST_LINES = 2000
"""Most lines and of endpoints: more than a figure has, few enough to draw at once."""
MOST_NAME = 80
MOST_COORDINATE = 1e6

SIDE = 600
AXES = (75, 72, 540, 534)
"""Left, top, right and bottom of the axes in pixels: matplotlib's own on 3 x 3 inches of 200 dpi."""
RANGE = 15
LINE_WIDTH, DOT_RADIUS, NAME_OFFSET = 2, 3, 3
NAME_SIZE, TICK_SIZE = 14, 28
TICKS = (-10, 0, 10)

Point = tuple[float, float]


class NotADrawing(ValueError):
    """Why a text that names line types is no drawing."""


@dataclass(frozen=True)
class LineDrawing:
    """Drawing, in the figure's own coordinates."""

    lines: tuple[tuple[Point, Point], ...]
    endpoints: tuple[tuple[str, Point], ...]


def parse_drawing(text: str) -> LineDrawing:
    """The drawing of a text. Raises NotADrawing where the published code would fail.

    A line that cannot be read is left out, as published; an endpoint that cannot be read is no drawing.
    """
    if len(text) > MOST_CHARACTERS:
        raise NotADrawing(f"more than {MOST_CHARACTERS:,} characters")
    figure = _literal(text)
    try:
        lines, kinds, endpoints = (figure["Line"][key] for key in ("line", MARK, "line_endpoint"))
    except (TypeError, KeyError, IndexError):
        raise NotADrawing("not a dictionary with lines, their types and endpoints") from None
    if not all(isinstance(value, (list, tuple)) for value in (lines, kinds, endpoints)):
        raise NotADrawing("lines, types or endpoints are not lists")
    if max(len(lines), len(endpoints)) > MOST_LINES:
        raise NotADrawing(f"more than {MOST_LINES} lines or endpoints")
    drawn = (_line(line) for line in lines[: len(kinds)])  # a line without a type fails in the published code
    return LineDrawing(tuple(line for line in drawn if line), tuple(_endpoint(entry) for entry in endpoints))


def draw(drawing: LineDrawing) -> Image.Image:
    """The drawing as an RGB picture of SIDE x SIDE pixels."""
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    left, top, right, bottom = AXES
    inside = Image.new("RGB", (right - left, bottom - top), "white")  # cuts off what lies beyond the axes
    pen = ImageDraw.Draw(inside)
    for line in drawing.lines:
        ends = [_pixel(point) for point in line]
        pen.line(ends, fill="black", width=LINE_WIDTH)
        for x, y in ends:
            pen.ellipse((x - DOT_RADIUS, y - DOT_RADIUS, x + DOT_RADIUS, y + DOT_RADIUS), fill="black")
    picture.paste(inside, (left, top))
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(NAME_SIZE)
    for name, point in drawing.endpoints:
        if max(map(abs, point)) <= RANGE:
            x, y = _pixel(point)
            corner = (left + x + NAME_OFFSET, top + y - NAME_OFFSET)
            pen.text(corner, name[:MOST_NAME], fill="black", font=font, anchor="ls")
    _frame(pen)
    return picture


def _frame(pen: ImageDraw.ImageDraw) -> None:
    """The axes' frame with its ticks and their numbers."""
    left, top, _, bottom = AXES
    font = ImageFont.load_default(TICK_SIZE)
    pen.rectangle(AXES, outline="black", width=2)
    for value in TICKS:
        x, y = _pixel((value, value))
        pen.line((left + x, bottom, left + x, bottom + 9), fill="black", width=2)
        pen.line((left - 9, top + y, left, top + y), fill="black", width=2)
        words = f"{value}".replace("-", "\N{MINUS SIGN}")
        pen.text((left + x, bottom + 18), words, fill="black", font=font, anchor="mt")
        pen.text((left - 18, top + y), words, fill="black", font=font, anchor="rm")


def _pixel(point: Point) -> Point:
    """A point's pixel within the axes, y upwards."""
    left, top, right, bottom = AXES
    x, y = point
    return (x + RANGE) / (2 * RANGE) * (right - left), (RANGE - y) / (2 * RANGE) * (bottom - top)


def _line(line: Any) -> tuple[Point, Point] | None:
    """Both ends of `(x, y) -- (x, y)`, whatever is between the first and the last; None for anything else."""
    if not isinstance(line, str):
        return None
    parts = line.split(" -- ")
    try:
        return _point(parts[0]), _point(parts[-1])
    except NotADrawing:
        return None


def _endpoint(entry: Any) -> tuple[str, Point]:
    """Name and place of `A: (x, y)`. Raises NotADrawing."""
    parts = entry.split(": ") if isinstance(entry, str) else []
    if len(parts) < 2:
        raise NotADrawing("an endpoint is not a name and a point")
    return parts[0], _point(parts[1])


def _point(text: str) -> Point:
    """Raises NotADrawing for anything but two finite numbers."""
    value = _literal(text)
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise NotADrawing("a point is not two numbers")
    if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in value):
        raise NotADrawing("a point is not two numbers")
    if not all(math.isfinite(number) and abs(number) <= MOST_COORDINATE for number in value):
        raise NotADrawing("a point lies out of all bounds")
    return float(value[0]), float(value[1])


def _literal(text: str) -> Any:
    """Raises NotADrawing for what is no Python literal."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise NotADrawing(f"not a literal ({type(error).__name__})") from None

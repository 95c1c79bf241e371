"""A page while it is drawn: lines, lists, tables and pictures on a canvas, with the truth about them kept.

Distances are pixels of the page. Glyph centres are kept for the dense supervision of the trainer.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from data.mini.training.fonts import Face

Box = tuple[int, int, int, int]
Ink = tuple[int, int, int]
Align = Literal["left", "centre", "right", "justified"]
Rules = Literal["grid", "rows", "box", "head"]

WIDEST_GAPS = 0.25  # of a line; one with more white than that is not justified
ASCENT = 0.8  # of the type size: from the top of a line down to its baseline


@dataclass(frozen=True)
class Block:
    """One block of a page; `box` is (x1, y1, x2, y2) in pixels, `text` is empty for a picture."""

    label: str
    box: Box
    text: str


@dataclass(frozen=True)
class Glyphs:
    """Printed characters: ASCII codes (N,) and the pixel positions (N,) of their centres."""

    codes: NDArray[np.uint8]
    x: NDArray[np.float32]
    y: NDArray[np.float32]


@dataclass(frozen=True)
class Page:
    """A drawn page with its truth, blocks in reading order."""

    image: Image.Image
    blocks: tuple[Block, ...]
    glyphs: Glyphs


@dataclass(frozen=True)
class Type:
    """Type of words: face, distance of baselines in px, colour."""

    face: Face
    pitch_px: int
    ink: Ink


@dataclass(frozen=True)
class Grid:
    """Rules and spaces of a table."""

    rules: Rules
    pad_px: int
    rule_px: int
    column_px: tuple[int, ...]
    row_px: int
    header: Type
    shade: Ink | None
    aligns: tuple[Align, ...]


def markup_of(rows: Sequence[Sequence[str]]) -> str:
    """A table as the model writes it: HTML without line ends."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{body}</table>"


def column_widths(rows: Sequence[Sequence[str]], header: Type, body: Type, around_px: int) -> list[int]:
    """Widths in px of a table's columns: the widest cell of each and `around_px` for padding and rule."""
    styles = (header, *(body,) * (len(rows) - 1))
    return [
        around_px + max(style.face.width(cell) for style, cell in zip(styles, column, strict=True))
        for column in zip(*rows, strict=True)
    ]


class Canvas:
    """Draws blocks in reading order and records them."""

    def __init__(self, width: int, height: int, paper: Ink, mode: str = "RGB") -> None:
        self._paper = paper if mode == "RGB" else sum(paper) // 3
        self.image = Image.new(mode, (width, height), self._paper)
        self._draw = ImageDraw.Draw(self.image)
        self._blocks: list[tuple[str, list[Box], str]] = []
        self._codes = bytearray()
        self._x: list[float] = []
        self._y: list[float] = []

    def colour(self, ink: Ink) -> Ink | int:
        """The ink in the canvas's mode."""
        return ink if self.image.mode == "RGB" else sum(ink) // 3

    def line(self, text: str, left: int, baseline: int, style: Type) -> Box:
        """Prints one line and returns the box of its ink."""
        # Glyphs are stamped from the face's store: asking FreeType for every line takes ten times as long.
        pencil = self._draw.draw
        colour = pencil.draw_ink(self.colour(style.ink))
        advances, stamps = style.face.advances, style.face.stamps
        pen, edges = left, []
        for character in text:
            step = advances[character]
            if character != " ":
                coverage, x1, y1, x2, y2 = stamps[character]
                pencil.draw_bitmap((pen + x1, baseline + y1), coverage, colour)
                edges.append((pen + x1, y1, pen + x2, y2))
                self._x.append(pen + step / 2)
            pen += step
        lefts, tops, rights, bottoms = zip(*edges, strict=True)
        box = (min(lefts), baseline + min(tops), max(rights), baseline + max(bottoms))
        self._codes += text.replace(" ", "").encode("ascii")
        self._y += [(box[1] + box[3]) / 2] * len(edges)
        return box

    def _aligned(
        self, text: str, left: int, width: int, baseline: int, style: Type, align: Align
    ) -> list[Box]:
        """One line set in `width`; a justified one word by word."""
        room = width - style.face.width(text)
        words = text.split(" ")
        if align != "justified" or len(words) < 2 or not 0 < room < WIDEST_GAPS * width:
            shift = {"centre": room // 2, "right": room}.get(align, 0)
            return [self.line(text, left + shift, baseline, style)]
        boxes, space = [], style.face.advances[" "]
        for index, word in enumerate(words):
            shift = room * index // (len(words) - 1)
            boxes.append(self.line(word, left + shift, baseline, style))
            left += style.face.width(word) + space
        x1, y1, x2, y2 = zip(*boxes, strict=True)
        return [(min(x1), min(y1), max(x2), max(y2))]

    def text(
        self,
        label: str,
        lines: Sequence[str],
        left: int,
        top: int,
        style: Type,
        width: int = 0,
        align: Align = "left",
        indent: int = 0,
    ) -> int:
        """Prints a block from (left, top) down, `indent` px into its first line; returns the new bottom."""
        boxes: list[Box] = []
        baseline = top + round(ASCENT * style.face.size_px)
        for index, line in enumerate(lines):
            start = 0 if index else indent
            last = align == "justified" and index == len(lines) - 1
            how: Align = "left" if last else align
            y = baseline + index * style.pitch_px
            boxes += self._aligned(line, left + start, width - start, y, style, how)
        self._blocks.append((label, boxes, " ".join(lines)))
        return top + len(lines) * style.pitch_px

    def items(
        self,
        items: Sequence[tuple[str, Sequence[str]]],
        left: int,
        top: int,
        style: Type,
        hang: int,
        dots: bool = False,
    ) -> int:
        """A list: (mark, lines) of each item, lines `hang` px in from the marks; returns the new bottom.

        With `dots` a disc is drawn for each mark; it still reads as the mark.
        """
        boxes: list[Box] = []
        baseline = top + round(ASCENT * style.face.size_px)
        for mark, lines in items:
            if dots:
                boxes.append(self._dot(mark, left, baseline, style))
            else:
                boxes.append(self.line(mark, left, baseline, style))
            for line in lines:
                boxes.append(self.line(line, left + hang, baseline, style))
                baseline += style.pitch_px
        self._blocks.append(("text", boxes, "\n".join(f"{mark} {' '.join(lines)}" for mark, lines in items)))
        return top + sum(len(lines) for _, lines in items) * style.pitch_px

    def _dot(self, mark: str, left: int, baseline: int, style: Type) -> Box:
        side = max(4, round(0.3 * style.face.size_px))
        x, y = left + side // 3, baseline - round(0.3 * style.face.size_px) - side // 2
        self._draw.ellipse((x, y, x + side - 1, y + side - 1), fill=self.colour(style.ink))
        self._codes += mark.encode("ascii")
        self._x.append(x + side / 2)
        self._y.append(y + side / 2)
        return x, y, x + side, y + side

    def table(self, rows: Sequence[Sequence[str]], left: int, top: int, style: Type, grid: Grid) -> int:
        """A table whose first row is the header; returns its bottom."""
        width, height = sum(grid.column_px), grid.row_px * len(rows)
        right, bottom, thick = left + width, top + height, grid.rule_px
        ink = self.colour(style.ink)
        boxes: list[Box] = []

        def rule(x1: int, y1: int, x2: int, y2: int) -> None:
            self._draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=ink)
            boxes.append((x1, y1, x2, y2))

        if grid.shade is not None:
            self._draw.rectangle((left, top, right - 1, top + grid.row_px - 1), fill=self.colour(grid.shade))
            boxes.append((left, top, right, top + grid.row_px))
        for index in range(len(rows) + 1):
            edge = index in (0, len(rows))
            if edge or grid.rules in ("grid", "rows") or (grid.rules == "head" and index == 1):
                y = top + index * grid.row_px
                rule(left, y, right + (thick if grid.rules in ("grid", "box") else 0), y + thick)
        if grid.rules in ("grid", "box"):
            x = left
            for index, column in enumerate((*grid.column_px, 0)):
                if grid.rules == "grid" or index in (0, len(grid.column_px)):
                    rule(x, top, x + thick, bottom + thick)
                x += column
        for number, row in enumerate(rows):
            setting = style if number else grid.header
            size = setting.face.size_px
            baseline = top + number * grid.row_px + (grid.row_px + thick) // 2 + round(0.35 * size)
            x = left + thick
            for cell, column, align in zip(row, grid.column_px, grid.aligns, strict=True):
                room = column - 2 * grid.pad_px - thick
                boxes += self._aligned(cell, x + grid.pad_px, room, baseline, setting, align)
                x += column
        self._blocks.append(("table", boxes, markup_of(rows)))
        return bottom + thick

    def rule(self, left: int, right: int, y: int, thick: int, ink: Ink) -> None:
        """A rule between blocks; it belongs to none."""
        self._draw.rectangle((left, y, right - 1, y + thick - 1), fill=self.colour(ink))

    def picture(self, picture: Image.Image, left: int, top: int) -> int:
        """Pastes a picture block; returns its bottom."""
        self.image.paste(picture.convert(self.image.mode), (left, top))
        box = (left, top, left + picture.width, top + picture.height)
        self._blocks.append(("image", [box], ""))
        return box[3]

    def page(self, skew_degrees: float = 0.0) -> Page:
        """The finished page, turned about its centre (counter-clockwise) on paper of the same colour."""
        image = self.image
        x, y = np.asarray(self._x, np.float32), np.asarray(self._y, np.float32)
        if skew_degrees:
            image = image.rotate(skew_degrees, Image.Resampling.BILINEAR, fillcolor=self._paper)
            x, y = self._turned(x, y, skew_degrees)
        blocks = tuple(
            Block(label, self._hull(boxes, skew_degrees), text) for label, boxes, text in self._blocks
        )
        return Page(image, blocks, Glyphs(np.frombuffer(bytes(self._codes), np.uint8), x, y))

    def _turned(
        self, x: NDArray[np.float32], y: NDArray[np.float32], degrees: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        middle_x, middle_y = self.image.width / 2, self.image.height / 2
        sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
        x, y = x - np.float32(middle_x), y - np.float32(middle_y)
        turned_x = cosine * x + sine * y + middle_x
        turned_y = cosine * y - sine * x + middle_y
        return turned_x.astype(np.float32), turned_y.astype(np.float32)

    def _hull(self, boxes: list[Box], degrees: float) -> Box:
        corners = np.asarray(boxes, np.float32)
        x, y = corners[:, [0, 2, 0, 2]], corners[:, [1, 1, 3, 3]]
        if degrees:
            x, y = self._turned(x, y, degrees)
        width, height = self.image.size
        return (
            max(0, round(float(x.min()))),
            max(0, round(float(y.min()))),
            min(width, round(float(x.max()))),
            min(height, round(float(y.max()))),
        )


def draw_picture(rng: random.Random, width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A picture without text: a soft photograph-like field, a mosaic, a chart or a landscape."""
    kind = rng.choice(("field", "field", "mosaic", "bars", "lines", "landscape"))

    def colour(low: int = 0, high: int = 255) -> Ink | int:
        ink = rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)
        return ink if mode == "RGB" else sum(ink) // 3

    if kind in ("field", "mosaic"):
        # Never as light as paper, so that the edge can be seen.
        levels = bytes(value * 7 // 8 for value in rng.randbytes(27))
        coarse = Image.frombytes("RGB", (3, 3), levels).convert(mode)
        how = Image.Resampling.BICUBIC if kind == "field" else Image.Resampling.NEAREST
        return coarse.resize((width, height), how)
    picture = Image.new(mode, (width, height), colour(150, 235))
    draw = ImageDraw.Draw(picture)
    if kind == "bars":
        bars = rng.randint(3, 8)
        ink = colour(20, 190)
        for index in range(bars):
            x = (index + 0.2) * width / bars
            tall = rng.uniform(0.2, 0.9) * height
            draw.rectangle((x, height - tall, x + 0.6 * width / bars, height), fill=ink)
    elif kind == "lines":
        for index in range(1, 5):
            draw.line((0, index * height / 5, width, index * height / 5), fill=colour(170, 200))
        for _ in range(rng.randint(1, 3)):
            steps = rng.randint(4, 9)
            points = [(width * step / steps, height * rng.uniform(0.1, 0.9)) for step in range(steps + 1)]
            draw.line(points, fill=colour(0, 150), width=max(2, height // 60))
    else:
        radius = rng.uniform(0.08, 0.2) * min(width, height)
        x, y = rng.uniform(0.2, 0.8) * width, rng.uniform(0.2, 0.4) * height
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour(200, 255))
        for _ in range(rng.randint(2, 4)):
            x, half = rng.uniform(0, width), rng.uniform(0.2, 0.6) * width
            top = rng.uniform(0.3, 0.7) * height
            draw.polygon([(x - half, height), (x, top), (x + half, height)], fill=colour(30, 170))
    draw.rectangle((0, 0, width - 1, height - 1), outline=colour(0, 120), width=2)
    return picture

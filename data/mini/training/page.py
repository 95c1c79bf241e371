"""A page while it is drawn: text lines and pictures on a canvas, with the truth about them kept.

Distances are pixels of the page. A glyph's centre is kept for the dense supervision of the trainer.
"""

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

FONT_DIRECTORY = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSansMono",
    "STIXGeneral",
    "STIXGeneralBol",
)
Box = tuple[int, int, int, int]
Ink = tuple[int, int, int]


@dataclass(frozen=True)
class Block:
    """One block of a page; `box` is (x1, y1, x2, y2) in pixels, `text` is empty for a picture."""

    label: str
    box: Box
    text: str


@dataclass(frozen=True)
class Glyph:
    """A printed character and the pixel position of its centre."""

    character: str
    x: float
    y: float


@dataclass(frozen=True)
class Page:
    """A drawn page with its truth, blocks in reading order."""

    image: Image.Image
    blocks: tuple[Block, ...]
    glyphs: tuple[Glyph, ...]


@cache
def font(name: str, size_px: int) -> ImageFont.FreeTypeFont:
    """A bundled font; basic layout, so that every machine draws the same glyphs."""
    path = FONT_DIRECTORY / f"{name}.ttf"
    return ImageFont.truetype(str(path), size_px, layout_engine=ImageFont.Layout.BASIC)


@cache
def advance(name: str, size_px: int, character: str) -> float:
    return font(name, size_px).getlength(character)


def line_width(name: str, size_px: int, text: str) -> float:
    """Width of a line in pixels, without kerning."""
    return sum(advance(name, size_px, character) for character in text)


def wrap(text: str, name: str, size_px: int, width_px: float) -> list[str]:
    """Greedy line breaking at spaces; a single word may be wider than the line."""
    lines: list[str] = []
    space = advance(name, size_px, " ")
    used = 0.0
    for word in text.split():
        width = line_width(name, size_px, word)
        if lines and used + space + width <= width_px:
            lines[-1] += " " + word
            used += space + width
        else:
            lines.append(word)
            used = width
    return lines


class Canvas:
    """Draws blocks from top to bottom and records them."""

    def __init__(self, width: int, height: int, background: Ink, mode: str = "RGB") -> None:
        self.image = Image.new("RGB", (width, height), background).convert(mode)
        self._draw = ImageDraw.Draw(self.image)
        self._blocks: list[Block] = []
        self._glyphs: list[Glyph] = []

    def _ink(self, ink: Ink) -> Ink | int:
        return ink if self.image.mode == "RGB" else sum(ink) // 3

    def text(
        self,
        label: str,
        lines: list[str],
        left: int,
        top: int,
        name: str,
        size_px: int,
        pitch_px: int,
        ink: Ink,
        centre_width: int | None = None,
    ) -> int:
        """Prints lines from (left, top) down, centred in `centre_width` if given; returns the new bottom."""
        face = font(name, size_px)
        boxes: list[tuple[float, ...]] = []
        for index, line in enumerate(lines):
            x, y = left, top + index * pitch_px
            if centre_width is not None:
                x += max(0, int(centre_width - line_width(name, size_px, line)) // 2)
            self._draw.text((x, y), line, font=face, fill=self._ink(ink))
            x1, y1, x2, y2 = face.getbbox(line)
            boxes.append((x + x1, y + y1, x + x2, y + y2))
            middle = y + (y1 + y2) / 2
            pen = float(x)
            for character in line:
                step = advance(name, size_px, character)
                if character != " ":
                    self._glyphs.append(Glyph(character, pen + step / 2, middle))
                pen += step
        x1s, y1s, x2s, y2s = zip(*boxes, strict=True)
        box = (int(min(x1s)), int(min(y1s)), round(max(x2s)), round(max(y2s)))
        self._blocks.append(Block(label, box, " ".join(lines)))
        return top + len(lines) * pitch_px

    def picture(self, picture: Image.Image, left: int, top: int) -> int:
        """Pastes a picture block; returns its bottom."""
        self.image.paste(picture.convert(self.image.mode), (left, top))
        box = (left, top, left + picture.width, top + picture.height)
        self._blocks.append(Block("image", box, ""))
        return box[3]

    def page(self) -> Page:
        return Page(self.image, tuple(self._blocks), tuple(self._glyphs))


def draw_picture(rng: random.Random, width: int, height: int) -> Image.Image:
    """A picture without text: a soft photograph-like field, a mosaic, a bar chart or a landscape."""
    kind = rng.choice(("field", "field", "mosaic", "bars", "landscape"))

    def colour(low: int = 0, high: int = 255) -> Ink:
        return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)

    if kind in ("field", "mosaic"):
        coarse = Image.frombytes("RGB", (3, 3), rng.randbytes(27))
        return coarse.resize((width, height), Image.BICUBIC if kind == "field" else Image.NEAREST)
    picture = Image.new("RGB", (width, height), colour(150, 235))
    draw = ImageDraw.Draw(picture)
    if kind == "bars":
        bars = rng.randint(3, 8)
        ink = colour(20, 190)
        for index in range(bars):
            x = (index + 0.2) * width / bars
            tall = rng.uniform(0.2, 0.9) * height
            draw.rectangle((x, height - tall, x + 0.6 * width / bars, height), fill=ink)
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

"""The sample pages of the app: drawn here, so that their truth is known to the pixel.

Sizes and file kinds cover what preprocessing has to deal with; type is as large as the embedded checkpoint
reads. `python -m data.mini.training samples` writes them anew, byte for byte with the same Pillow.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from data.mini.training.fonts import face
from data.mini.training.page import Align, Canvas, Grid, Ink, Page, Type, column_widths, draw_picture
from data.mini.training.render import grained

SIDE_PX = 640  # of a page's longer side, for which sizes of type are given
LEADING = 1.35
BLACK: Ink = (25, 25, 30)
WHITE: Ink = (255, 255, 255)
EXIF_ORIENTATION = 0x0112
ROTATE_CLOCKWISE = 6
Save = Callable[[Image.Image, Path], None]


def save_png(image: Image.Image, path: Path) -> None:
    image.save(path, optimize=True)


def save_jpeg(image: Image.Image, path: Path) -> None:
    image.save(path, quality=90)


def save_rotated_jpeg(image: Image.Image, path: Path) -> None:
    """Stored lying on its side with the EXIF tag that stands it up, as cameras do."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = ROTATE_CLOCKWISE
    image.transpose(Image.Transpose.ROTATE_90).save(path, quality=90, exif=exif)


def save_transparent_png(image: Image.Image, path: Path) -> None:
    """White paper becomes transparent; its colour stays white beneath."""
    opacity = image.convert("L").point(lambda value: 0 if value == 255 else 255)
    image.putalpha(opacity)
    save_png(image, path)


SAVED: dict[str, Save] = {
    "png": save_png, "jpeg": save_jpeg, "rotated_jpeg": save_rotated_jpeg,
    "transparent_png": save_transparent_png,
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One block to draw. For an image, `text` is its width / height ratio and its seed, as "1.8 7".

    The lines of a list are its items with their marks; those of a table its rows, cells split by "|".
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Sample:
    """A page to draw. Sizes of type are pixels on a page whose longer side is 640."""

    name: str
    size: tuple[int, int]
    parts: tuple[Part, ...]
    body: float = 19
    title: float = 30
    fonts: tuple[str, str] = ("DejaVuSans-Bold", "DejaVuSans")
    paper: Ink = WHITE
    ink: Ink = BLACK
    title_ink: Ink = BLACK
    mode: str = "RGB"
    centred: bool = False
    columns: int = 1
    margin: float = 0.08
    gap: float = 1.2
    header: str = ""
    footer: str = ""
    skew_degrees: float = 0
    grain: int = 0  # grey levels
    save: Save = save_png


def read_samples() -> tuple[Sample, ...]:
    """The pages that `samples.json` describes."""
    samples = []
    for entry in json.loads(Path(__file__).with_name("samples.json").read_text(encoding="utf-8")):
        values = {name: tuple(each) if isinstance(each, list) else each for name, each in entry.items()}
        values["parts"] = tuple(Part(kind, "\n".join(lines)) for kind, *lines in entry["parts"])
        samples.append(Sample(**values | {"save": SAVED[entry.get("save", "png")]}))
    return tuple(samples)


def _draw_table(canvas: Canvas, text: str, left: int, top: int, style: Type, header: Type) -> int:
    """A ruled table as wide as its cells, numbers to the right; returns its bottom."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.split("\n")]
    size_px = style.face.size_px
    pad, thick = round(0.6 * size_px), max(1, size_px // 14)
    aligns: tuple[Align, ...] = tuple("right" if cell[-1].isdigit() else "left" for cell in rows[-1])
    widths = tuple(column_widths(rows, header, style, 2 * pad + thick))
    grid = Grid("grid", pad, thick, widths, round(1.7 * size_px), header, None, aligns)
    return canvas.table(rows, left, top, style, grid)


def _draw_list(canvas: Canvas, text: str, left: int, top: int, style: Type, width: int) -> int:
    marked = [line.split(" ", 1) for line in text.split("\n")]
    hang = max(style.face.width(f"{mark} ") for mark, _ in marked) + style.face.size_px // 4
    items = [(mark, style.face.wrap(item, width - hang)) for mark, item in marked]
    return canvas.items(items, left, top, style, hang, dots=marked[0][0] == "-")


def draw_sample(sample: Sample) -> Page:
    """Lays the parts out from top to bottom, column by column. Raises ValueError where they do not fit."""
    width, height = sample.size
    scale = max(width, height) / SIDE_PX
    canvas = Canvas(width, height, sample.paper, sample.mode)
    margin = round(sample.margin * width)
    column = (width - (sample.columns + 1) * margin) // sample.columns

    def style(name: str, view_px: float, ink: Ink) -> Type:
        size_px = round(view_px * scale)
        return Type(face(name, size_px), round(size_px * LEADING), ink)

    body, bold = (
        style(sample.fonts[1], sample.body, sample.ink),
        style(sample.fonts[0], sample.body, sample.ink),
    )
    titles = style(sample.fonts[0], sample.title, sample.title_ink)
    small = style(sample.fonts[1], max(16, sample.body - 2), sample.ink)
    gap = round(sample.body * scale * sample.gap)
    top = round(0.07 * height)
    if sample.header:
        top = gap + canvas.text("text", [sample.header], margin, top // 2, small)
    left, y = margin, top
    for part in sample.parts:
        if y > 0.6 * height and left == margin and sample.columns > 1:
            left, y = left + column + margin, top
        if part.kind == "image":
            ratio, seed = part.text.split()
            picture_width = round(column * 0.8)
            picture = draw_picture(random.Random(seed), picture_width, round(picture_width / float(ratio)))
            y = canvas.picture(picture, left + (column - picture_width) // 2, y)
        elif part.kind == "table":
            y = _draw_table(canvas, part.text, left, y, body, bold)
        elif part.kind == "list":
            y = _draw_list(canvas, part.text, left, y, body, column)
        else:
            setting = {"title": titles, "text": body}.get(part.kind, small)
            centred = part.kind == "image_caption" or (sample.centred and part.kind == "title")
            lines = setting.face.wrap(part.text, column)
            y = canvas.text(part.kind, lines, left, y, setting, column, "centre" if centred else "left")
        y += gap
    if sample.footer:
        bottom = height - top // 3 - small.pitch_px
        canvas.text("text", [sample.footer], margin, bottom, small, width - 2 * margin, "centre")
    page = canvas.page(sample.skew_degrees)
    lowest = max(block.box[3] for block in page.blocks)
    if lowest > 0.98 * height:
        raise ValueError(f"{sample.name}: the last block ends at {lowest} of {height} px; make it shorter")
    if sample.grain:
        pixels = np.array(page.image)
        grained(random.Random(sample.name), pixels, sample.grain)
        page = Page(Image.fromarray(pixels), page.blocks, page.glyphs)
    return page


def write_samples(directory: Path) -> None:
    """Writes the pages and `ground_truth.json`; sizes and boxes are those of the upright page."""
    directory.mkdir(parents=True, exist_ok=True)
    truth = {}
    for sample in read_samples():
        page = draw_sample(sample)
        sample.save(page.image, directory / sample.name)
        width, height = sample.size
        blocks = [{"label": each.label, "box": list(each.box), "text": each.text} for each in page.blocks]
        truth[sample.name] = {"width": width, "height": height, "blocks": blocks}
    text = json.dumps(truth, indent=1, ensure_ascii=False) + "\n"
    (directory / "ground_truth.json").write_text(text, encoding="utf-8")

"""The sample pages of the app: drawn here, so that their truth is known to the pixel.

Sizes and file kinds cover what preprocessing has to deal with; type is as large as the embedded checkpoint
reads. `python -m data.mini.training samples` writes them anew, byte for byte with the same Pillow.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
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
    save: Save = field(default=save_png)


def _title(text: str) -> Part:
    return Part("title", text)


def _text(text: str) -> Part:
    return Part("text", text)


def _image(text: str) -> Part:
    return Part("image", text)


def _list(*items: str) -> Part:
    return Part("list", "\n".join(items))


def _table(*rows: str) -> Part:
    return Part("table", "\n".join(rows))


def _caption(kind: str, text: str) -> Part:
    return Part(f"{kind}_caption", text)


SAMPLES = (
    Sample(
        "01-letter.png",
        (827, 1169),
        (
            _title("Northwind Library"),
            _text("14 March 2025"),
            _text("Dear Ms. Alvarez,"),
            _text(
                "Thank you for the 32 maps you gave to our archive. Two of them show the old harbour "
                "before the fire, and were thought lost."
            ),
            _text("They will be on view from 6 May, in room 4."),
            _text("With kind regards, Tom Field"),
        ),
        fonts=("DejaVuSerif-Bold", "DejaVuSerif"),
        body=16,
    ),
    Sample(
        "02-invoice.png",
        (800, 1000),
        (
            _title("Invoice 2047"),
            _text("Bluebird Cycles, 9 Mill Lane"),
            _table(
                "Item | Price",
                "2 inner tubes | 11.80",
                "1 chain, steel | 24.50",
                "Brake service | 35.00",
            ),
            _text("Total due: $71.30"),
            _text("Please pay within 14 days. Late payments cost 2% a month."),
        ),
        title_ink=(20, 60, 120),
        fonts=("Roboto-Bold", "Roboto-Regular"),
    ),
    Sample(
        "03-tall-notice.png",
        (520, 1400),
        (
            _title("Pool rules"),
            _text("Shower before you swim."),
            _text("No running, no diving from the side."),
            _text("Children under 8 only with an adult."),
            _text("Lanes 1 and 2 are for fast swimmers."),
            _text("We close at 21:30. Last entry 20:45."),
        ),
        body=21,
        title=34,
    ),
    Sample(
        "04-wide-banner.png",
        (1500, 700),
        (
            _title("Harbour Market, every Saturday"),
            _text("Fresh bread, honey, fish and flowers from 40 local makers. Open from 8:00 until 14:00."),
            _text("Park at the north gate; dogs are welcome on a lead."),
        ),
        body=21,
        title=31,
        paper=(250, 246, 232),
        title_ink=(120, 40, 20),
        centred=True,
        margin=0.06,
    ),
    Sample(
        "05-square-card.png",
        (900, 900),
        (
            _title("Lemon cake"),
            _text("Beat 200 g butter with 180 g sugar. Add 3 eggs, the juice of 2 lemons and 250 g flour."),
            _text("Bake for 45 minutes at 170 degrees."),
            _text("Let it cool before you cut it."),
        ),
        body=22,
        title=36,
        fonts=("DejaVuSerif-Italic", "DejaVuSerif"),
        paper=(255, 252, 240),
    ),
    Sample(
        "06-small-ticket.png",
        (560, 420),
        (
            _title("Ticket 80316"),
            _text("Evening boat to Grey Island"),
            _text("Friday, pier 5, 18:40"),
            _text("Seat 27, one adult: $16"),
        ),
        body=26,
        title=38,
        fonts=("DejaVuSansMono", "DejaVuSansMono"),
    ),
    Sample(
        "07-large-scan.png",
        (1700, 2200),
        (
            _title("Minutes of the garden club"),
            _text("Nine members met on 3 June. The plant sale was a success and made $412."),
            _text("We agreed to mend the tool shed before winter; Rosa asks two firms for a price."),
            _text("Next meeting: 1 July at 19:00."),
        ),
        fonts=("STIXGeneralBol", "STIXGeneral"),
        body=20,
        title=32,
    ),
    Sample(
        "08-phone-photo.jpg",
        (900, 1200),
        (
            _title("Lost cat"),
            _image("1.7 14"),
            _text("Grey, white paws, answers to Milo. Last seen near Oak Street on Monday night."),
            _text("Call 555-0142, reward!"),
        ),
        body=23,
        title=42,
        paper=(238, 226, 196),
        centred=True,
        skew_degrees=1,
        grain=3,
        save=save_rotated_jpeg,
    ),
    Sample(
        "09-report-picture.png",
        (850, 1100),
        (
            _title("Rainfall in the valley"),
            _text("The wettest month was April with 118 mm; July stayed dry."),
            _image("1.6 38"),
            _text("Each bar stands for one year since 2018. The river gauge at the mill shows the same."),
        ),
        body=20,
    ),
    Sample(
        "10-grayscale-memo.png",
        (800, 1040),
        (
            _title("MEMO"),
            _text("To: all staff"),
            _text("From: building office"),
            _text("The lift in wing B is out of use until Thursday. Please take the stairs or use wing C."),
            _text("Heavy parcels can wait at the front desk."),
        ),
        fonts=("DejaVuSansMono", "DejaVuSerif"),
        mode="L",
        paper=(240, 240, 240),
        body=20,
    ),
    Sample(
        "11-alpha-label.png",
        (760, 760),
        (
            _title("Wildflower honey"),
            _text("Net weight 340 g"),
            _text("Gathered in June on the south hills by bees of the Marek family."),
            _text("Best before 11/2027"),
        ),
        body=24,
        title=36,
        fonts=("DejaVuSerif-Bold", "DejaVuSans"),
        ink=(70, 45, 10),
        title_ink=(140, 80, 0),
        save=save_transparent_png,
    ),
    Sample(
        "12-two-columns.png",
        (1200, 900),
        (
            _title("Night train"),
            _text("It leaves at ten and follows the coast until dawn."),
            _image("2.6 20"),
            _caption("image", "Figure 1: The bay at dawn"),
            _title("What to bring"),
            _text("A warm coat, 1 book."),
            _caption("table", "Table 1. Prices of a place"),
            _table("Place | Price", "Bed | $48", "Chair | $19"),
        ),
        body=16,
        title=25,
        fonts=("STIXGeneralBol", "STIXGeneral"),
        columns=2,
        margin=0.05,
        header="Coast and rail",
        footer="27",
    ),
    Sample(
        "13-poster.jpg",
        (1000, 1000),
        (
            _title("Open day at the observatory"),
            _image("2.4 59"),
            _text("See Saturn's rings through the big lens (weather permitting)."),
            _text("Saturday, 22:00 to 1:00. Free, but please book."),
        ),
        body=22,
        title=34,
        paper=(232, 238, 248),
        title_ink=(30, 40, 90),
        save=save_jpeg,
    ),
    Sample(
        "14-release-note.png",
        (1100, 850),
        (
            _title("Version 3.2"),
            _text("Large files now open without a pause."),
            _list(
                "- Start-up is 40% faster",
                "- Fixed: the export button did nothing",
                "- Fixed: dates before 1970 were wrong",
            ),
            _title("Known issues"),
            _list("1. Printing needs one click too many", "2. Help opens in English only"),
        ),
        body=19,
        title=29,
        fonts=("Roboto-Bold", "Roboto-Regular"),
    ),
)


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
    for sample in SAMPLES:
        page = draw_sample(sample)
        sample.save(page.image, directory / sample.name)
        width, height = sample.size
        blocks = [{"label": each.label, "box": list(each.box), "text": each.text} for each in page.blocks]
        truth[sample.name] = {"width": width, "height": height, "blocks": blocks}
    text = json.dumps(truth, indent=1, ensure_ascii=False) + "\n"
    (directory / "ground_truth.json").write_text(text, encoding="utf-8")

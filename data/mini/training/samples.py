"""The sample pages of the app: drawn here, so that their truth is known to the pixel.

Sizes and file kinds cover what preprocessing has to deal with; type is as large as the embedded checkpoint
reads. `python -m data.mini.training samples` writes them anew, byte for byte with the same Pillow.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from data.mini.training.page import Canvas, Ink, Page, draw_picture, wrap
from data.mini.training.render import MODEL_SIDE_PX

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
    """One block to draw. For an image, `text` is its width / height ratio and its seed, as "1.8 7"."""

    label: str
    text: str


@dataclass(frozen=True)
class Sample:
    """A page to draw. Type sizes are pixels on a page whose longer side is 640."""

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
    save: Save = field(default=save_png)


def _title(text: str) -> Part:
    return Part("title", text)


def _text(text: str) -> Part:
    return Part("text", text)


def _image(text: str) -> Part:
    return Part("image", text)


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
        body=18,
    ),
    Sample(
        "02-invoice.png",
        (800, 1000),
        (
            _title("Invoice 2047"),
            _text("Bluebird Cycles, 9 Mill Lane"),
            _text("2 inner tubes 11.80"),
            _text("1 chain, steel 24.50"),
            _text("Brake service 35.00"),
            _text("Total due: $71.30"),
            _text("Please pay within 14 days. Late payments cost 2% a month."),
        ),
        title_ink=(20, 60, 120),
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
        body=22,
        title=32,
    ),
    Sample(
        "08-phone-photo.jpg",
        (900, 1200),
        (
            _title("Lost cat"),
            _image("1.7 27"),
            _text("Grey, white paws, answers to Milo. Last seen near Oak Street on Monday night."),
            _text("Call 555-0142, reward!"),
        ),
        body=23,
        title=42,
        paper=(244, 242, 238),
        centred=True,
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
            _text("It leaves at ten and rolls along the coast. By dawn the first tunnels are behind you."),
            _title("What to bring"),
            _text("A warm coat, 1 book, some fruit."),
            _image("2.2 22"),
            _text("Beds cost $48; a chair is $19. Tea is free after 6:30."),
        ),
        body=20,
        title=29,
        fonts=("STIXGeneralBol", "DejaVuSerif"),
        columns=2,
        margin=0.05,
    ),
    Sample(
        "13-poster.jpg",
        (1000, 1000),
        (
            _title("Open day at the observatory"),
            _image("2.4 32"),
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
            _text("Start-up is 40% faster, and large files open without a pause."),
            _text("Fixed: the export button did nothing; dates before 1970 were wrong."),
            _text("Known issue: printing needs one click too many."),
        ),
        body=21,
        title=32,
    ),
)


def draw_sample(sample: Sample) -> Page:
    """Lays the parts out from top to bottom, column by column."""
    width, height = sample.size
    scale = max(width, height) / MODEL_SIDE_PX
    canvas = Canvas(width, height, sample.paper, sample.mode)
    margin = round(sample.margin * width)
    column = (width - (sample.columns + 1) * margin) // sample.columns
    top = round(0.07 * height)
    left, y = margin, top
    for part in sample.parts:
        if y > 0.6 * height and left == margin and sample.columns > 1:
            left, y = left + column + margin, top
        gap = round(sample.body * scale * sample.gap)
        if part.label == "image":
            ratio, seed = part.text.split()
            picture_width = round(column * 0.8)
            picture = draw_picture(random.Random(seed), picture_width, round(picture_width / float(ratio)))
            y = canvas.picture(picture, left + (column - picture_width) // 2, y) + gap
            continue
        heading = part.label == "title"
        size_px = round((sample.title if heading else sample.body) * scale)
        name = sample.fonts[0 if heading else 1]
        y = gap + canvas.text(
            part.label,
            wrap(part.text, name, size_px, column),
            left,
            y,
            name,
            size_px,
            round(size_px * 1.35),
            sample.title_ink if heading else sample.ink,
            column if sample.centred and heading else None,
        )
    page = canvas.page()
    lowest = max(block.box[3] for block in page.blocks)
    if lowest > 0.98 * height:
        raise ValueError(f"{sample.name}: the last block ends at {lowest} of {height} px; make it shorter")
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

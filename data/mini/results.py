"""From generated text to the files of `save_results`. The text is a model's: it is parsed, never run."""

import json
import re
import zlib
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

SPAN = re.compile(r"<\|ref\|>(.*?)<\|/ref\|><\|det\|>(.*?)<\|/det\|>", re.DOTALL)
IMAGE_SPAN = "<|ref|>image<|/ref|>"
COORDINATE_RANGE = 999
FILL_ALPHA = 20
LABEL_LIMIT = 80
"""Characters of a label that are drawn."""

Box = tuple[int, int, int, int]


def clean_output(text: str, end_token: str) -> str:
    """The text without a trailing end token, stripped."""
    return text.removesuffix(end_token).strip()


def save_result_files(text: str, page: Image.Image, directory: Path) -> None:
    """Write result.mmd, result_with_boxes.jpg and images/N.jpg."""
    spans = list(SPAN.finditer(text))
    boxed = draw_boxes(page, [(span[1], pixel_boxes(span[2], page.size)) for span in spans], directory)
    markdown = to_markdown(text, [span[0] for span in spans])
    (directory / "result.mmd").write_text(markdown, encoding="utf-8", newline="")
    boxed.save(directory / "result_with_boxes.jpg")


def to_markdown(text: str, spans: list[str]) -> str:
    """Image spans become links in their order, the other spans vanish."""
    for number, span in enumerate(span for span in spans if IMAGE_SPAN in span):
        text = text.replace(span, f"![](images/{number}.jpg)\n")
    for span in (span for span in spans if IMAGE_SPAN not in span):
        text = text.replace(span, "").replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
    return text


def pixel_boxes(coordinates: str, size: tuple[int, int]) -> list[Box]:
    """The boxes of `[[x1, y1, x2, y2], ...]` in pixels, up to the first that is not one."""
    try:
        points = json.loads(coordinates)
    except (ValueError, RecursionError) as error:
        print(f"coordinates not understood: {type(error).__name__}")
        return []
    width, height = size
    boxes: list[Box] = []
    for point in points if isinstance(points, list) else []:
        try:
            x1, y1, x2, y2 = point
            boxes.append((
                int(x1 / COORDINATE_RANGE * width), int(y1 / COORDINATE_RANGE * height),
                int(x2 / COORDINATE_RANGE * width), int(y2 / COORDINATE_RANGE * height),
            ))  # fmt: skip
        except (TypeError, ValueError, OverflowError):
            break
    return boxes


def draw_boxes(page: Image.Image, blocks: list[tuple[str, list[Box]]], directory: Path) -> Image.Image:
    """The page with its boxes; crops of `image` blocks are saved on the way."""
    boxed = page.copy()
    outline = ImageDraw.Draw(boxed)
    overlay = Image.new("RGBA", page.size, (0, 0, 0, 0))
    fill = ImageDraw.Draw(overlay)
    font = ImageFont.load_default()
    number = 0
    for label, boxes in blocks:
        colour = label_colour(label)
        for box in boxes:
            # A reversed box has no inside: it keeps its number and is not drawn.
            drawable = box[0] <= box[2] and box[1] <= box[3]
            if label == "image":
                if drawable:
                    save_crop(page, box, directory / "images" / f"{number}.jpg")
                number += 1
            if drawable:
                box = near_page(box, page.size)
                outline.rectangle(box, outline=colour, width=4 if label == "title" else 2)
                fill.rectangle(box, fill=(*colour, FILL_ALPHA), outline=(0, 0, 0, 0), width=1)
                draw_label(outline, label[:LABEL_LIMIT], box, colour, font)
    boxed.paste(overlay, (0, 0), overlay)
    return boxed


def near_page(box: Box, size: tuple[int, int]) -> Box:
    """The box without what lies far outside of the page, where drawing would only cost time."""
    margin = 8
    x1, x2 = (max(-margin, min(size[0] + margin, x)) for x in (box[0], box[2]))
    y1, y2 = (max(-margin, min(size[1] + margin, y)) for y in (box[1], box[3]))
    return x1, y1, x2, y2


def save_crop(page: Image.Image, box: Box, path: Path) -> None:
    try:
        page.crop(box).save(path)
    except (ValueError, SystemError, MemoryError, OSError, Image.DecompressionBombError) as error:
        print(f"{path.name}: not saved, {error}")


def draw_label(
    draw: ImageDraw.ImageDraw, label: str, box: Box, colour: tuple[int, int, int], font: Any
) -> None:
    x, y = box[0], max(0, box[1] - 15)
    try:
        left, top, right, bottom = draw.textbbox((0, 0), label, font=font)
        draw.rectangle((x, y, x + right - left, y + bottom - top), fill=(255, 255, 255))
        draw.text((x, y), label, font=font, fill=colour)
    except (UnicodeError, ValueError, OverflowError) as error:
        print(f"label not drawn: {type(error).__name__}")


def label_colour(label: str) -> tuple[int, int, int]:
    """One colour a label, the same in every run, dark enough for text on white."""
    digest = zlib.crc32(label.encode("utf-8", "replace"))
    return digest % 200, (digest >> 8) % 200, (digest >> 16) % 255

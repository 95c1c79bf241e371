"""From generated text to the files of `save_results`. The text is a model's: it is parsed, never run."""

import ast
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

POINT = re.compile(r"\(\s*(-?\d+(?:\.\d+)?)\s*,\s*(-?\d+(?:\.\d+)?)\s*\)")
DRAWING_SIDE = 600
DRAWING_RANGE = 15
DRAWING_LIMIT = 100_000
"""Characters of text that are tried as a line drawing."""

Box = tuple[int, int, int, int]


def clean_output(text: str, end_token: str) -> str:
    """The text without a trailing end token, stripped."""
    return text.removesuffix(end_token).strip()


def save_result_files(text: str, page: Image.Image, directory: Path) -> None:
    """Write result.mmd, result_with_boxes.jpg, images/N.jpg and, for line drawings, geo.jpg."""
    spans = list(SPAN.finditer(text))
    boxed = draw_boxes(page, [(span[1], pixel_boxes(span[2], page.size)) for span in spans], directory)
    markdown = to_markdown(text, [span[0] for span in spans])
    (directory / "result.mmd").write_text(markdown, encoding="utf-8", newline="")
    if "line_type" in markdown:
        save_line_drawing(markdown, directory / "geo.jpg")
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


def save_line_drawing(text: str, path: Path) -> None:
    """Draw `{'Line': {'line': ['(x, y) -- (x, y)', ...], 'line_endpoint': ['A: (x, y)', ...]}}`."""
    try:
        if len(text) > DRAWING_LIMIT:
            raise ValueError("too long")
        drawing = ast.literal_eval(text)["Line"]
        lines = [POINT.findall(str(line)) for line in drawing["line"]]
        endpoints = [str(endpoint) for endpoint in drawing["line_endpoint"]]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        print(f"{path.name}: not drawn, the text is no line drawing ({type(error).__name__})")
        return
    image = Image.new("RGB", (DRAWING_SIDE, DRAWING_SIDE), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default()
    for points in (points for points in lines if len(points) >= 2):
        ends = [to_drawing(points[0]), to_drawing(points[-1])]
        draw.line(ends, fill="black", width=2)
        for x, y in ends:
            draw.ellipse((x - 3, y - 3, x + 3, y + 3), fill="black")
    for endpoint in endpoints:
        label, _, rest = endpoint.partition(": ")
        if point := POINT.search(rest):
            x, y = to_drawing(point.groups())
            draw.text((x + 3, y - 14), label[:LABEL_LIMIT], fill="black", font=font)
    image.save(path)


def to_drawing(point: Any) -> tuple[float, float]:
    """Coordinates in -15..15, y upward, as pixels; far ones stay near the edge."""
    x, y = (max(-2 * DRAWING_RANGE, min(2 * DRAWING_RANGE, float(value))) for value in point)
    scale = DRAWING_SIDE / (2 * DRAWING_RANGE)
    return (x + DRAWING_RANGE) * scale, (DRAWING_RANGE - y) * scale

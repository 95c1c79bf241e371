"""Folders as the three scripts of the vendor's vLLM directory leave them, written by their rules.

Written from what the scripts do, with none of their code: what is read here is what users have.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.reading.markup import Span, parse

END_TOKEN = "<｜end▁of▁sentence｜>"


@dataclass(frozen=True)
class Generated:
    """A page's picture and what the model generated for it, with the end token where it ended."""

    picture: Image.Image
    text: str


def image_script(folder: Path, page: Generated) -> None:
    """One page: raw text, clean text, picture with boxes, crops. vLLM gives no end token in the text."""
    (folder / "images").mkdir(parents=True)
    text = page.text.replace(END_TOKEN, "")
    (folder / "result_ori.mmd").write_text(text, encoding="utf-8")
    (folder / "result.mmd").write_text(_clean(text, ""), encoding="utf-8")
    _drawn(page.picture, text, folder / "images", "").save(folder / "result_with_boxes.jpg")


def pdf_script(folder: Path, name: str, pages: Sequence[Generated], skip_repeat: bool = True) -> list[int]:
    """A PDF's pages; returns the numbers, from 1, of those that are in the files."""
    (folder / "images").mkdir(parents=True)
    raw = clean = ""
    layouts: list[Image.Image] = []
    written = []
    for number, page in enumerate(pages, 1):
        if END_TOKEN not in page.text and skip_repeat:
            continue  # before the counter of pictures is advanced
        text = page.text.replace(END_TOKEN, "")
        raw += text + "\n\n<--- Page Split --->\n"
        layouts.append(_drawn(page.picture, text, folder / "images", f"{len(layouts)}_"))
        clean += _clean(text, f"{len(layouts) - 1}_") + "\n\n<--- Page Split --->\n"
        written.append(number)
    (folder / f"{name}_det.mmd").write_text(raw, encoding="utf-8")
    (folder / f"{name}.mmd").write_text(clean, encoding="utf-8")
    if layouts:
        layouts[0].save(
            folder / f"{name}_layouts.pdf",
            save_all=True,
            append_images=layouts[1:],
            resolution=96,
            quality=95,
        )
    return written


def eval_script(folder: Path, names: Sequence[str], texts: Sequence[str]) -> None:
    """Images of a folder. Paths are the folder's name and the image's with nothing between; `.jpg` alone is
    replaced, so a text of another image has the image's name."""
    folder.mkdir(parents=True)
    for name, text in zip(names, texts, strict=True):
        for content, suffix in ((text.replace(END_TOKEN, ""), "_det.md"), (_clean(text, None), ".md")):
            Path(f"{folder}{name.replace('.jpg', suffix)}").write_text(content, encoding="utf-8")


def _marks(text: str) -> list[tuple[str, Span]]:
    return [(text[span.start : span.end], span) for span in parse(text) if span.closed]


def _clean(text: str, prefix: str | None) -> str:
    """Markup removed; images become links with `prefix`, or go as well when it is None."""
    result, pictures = text.replace(END_TOKEN, ""), 0
    for mark, span in _marks(result):
        if span.label == "image" and prefix is not None:
            result = result.replace(mark, f"![](images/{prefix}{pictures}.jpg)\n")
            pictures += 1
        else:
            result = result.replace(mark, "").replace("\n\n\n", "\n\n")
    return result


def _drawn(page: Image.Image, text: str, images: Path, prefix: str) -> Image.Image:
    """The page with its boxes in chance colours; crops of images are saved."""
    drawn, overlay = page.copy(), Image.new("RGBA", page.size, (0, 0, 0, 0))
    lines, fills = ImageDraw.Draw(drawn), ImageDraw.Draw(overlay)
    chance, crops = random.Random(text), 0
    for _, span in _marks(text):
        colour = (chance.randrange(200), chance.randrange(200), chance.randrange(255))
        for box in span.boxes:
            x1, y1, x2, y2 = (
                int(value / 999 * side) for value, side in zip(box, (*page.size, *page.size), strict=True)
            )
            if span.label == "image":
                page.crop((x1, y1, x2, y2)).save(images / f"{prefix}{crops}.jpg")
                crops += 1
            lines.rectangle((x1, y1, x2, y2), outline=colour, width=4 if span.label == "title" else 2)
            fills.rectangle((x1, y1, x2, y2), fill=(*colour, 20))
            above = (x1, max(0, y1 - 15))
            wide = lines.textbbox(above, span.label, font=ImageFont.load_default())
            lines.rectangle(wide, fill=(255, 255, 255))
            lines.text(above, span.label, fill=colour, font=ImageFont.load_default())
    drawn.paste(overlay, (0, 0), overlay)
    return drawn

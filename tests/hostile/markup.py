"""Texts of a model that end in the middle, nest, repeat, or hold numbers and signs nobody asked for."""

from __future__ import annotations

from pathlib import Path
from random import Random

from dsocr_core.reading.markup import page_boxes, parse
from dsocr_core.reading.postprocess import clean_text, result_mmd

_PIECES = (
    "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "title", "image", "[[1, 2, 3, 4]]", "[[", "]]", "[", ", ",
    "999", "1e999", "-1e308", "NaN", "Infinity", "9" * 400, "0x10", "None", "true", "__import__('os')", "\0",
    "\ud800", "\u202e", "<script>alert(1)</script>", "[a](javascript:alert(1))", "\\(", "\\]", "|---|", "\n",
    "<｜end▁of▁sentence｜>", "{" * 50, "[" * 300, "(" * 300, "'", '"', "text\n",
)  # fmt: skip
_SIDES = (1, 2, 640, 9999)


def attempt(random: Random, folder: Path) -> str | None:
    """One text, parsed into spans, boxes and plain text: all of it has an answer."""
    text = "".join(random.choices(_PIECES, k=random.choice((1, 5, 40, 400))))
    if random.random() < 0.02:
        text *= 100
    width, height = random.choice(_SIDES), random.choice(_SIDES)
    boxes = page_boxes(parse(text), (width, height))
    result_mmd(text)
    parse(clean_text(text))
    for box in boxes:
        if not all(-1e12 < float(side) < 1e12 for side in (box.x1, box.y1, box.x2, box.y2)):
            return f"a box of {box} on a page of {width} x {height}"
    return None

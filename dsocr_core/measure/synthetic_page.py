"""A drawn page for measuring: text at any size, the same for all."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.settings import SettingsError


def parse_size(text: str) -> tuple[int, int]:
    """(width, height) of a text like `1280x1280`. Raises SettingsError."""
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isascii() and height.isascii() and width.isdigit() and height.isdigit()):
        raise SettingsError(f"size is '{text[:40]}': give WIDTHxHEIGHT in pixels, like 1280x1280")
    return int(width), int(height)


def draw_page(path: Path, size: tuple[int, int], number: int) -> Path:
    """Draw a page of text lines. Each number is another page."""
    picture = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(max(10, size[1] // 40))
    for line, top in enumerate(range(size[1] // 20, size[1] * 19 // 20, max(14, size[1] // 25))):
        text = f"Page {number + 1}, line {line + 1}: {number * 7919 + line * 104729} words are written here."
        pen.text((size[0] // 15, top), text, fill="black", font=font)
    picture.save(path)
    return path

"""A page on which n-gram rules show, and what our engine writes on it under each setting."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.settings import Settings
from dsocr_core.trace.why.attempt import Attempt
from dsocr_core.trace.why.reader import Reader, Reading


def page_of_lines(path: Path, line: str = "green boats near the old pier", count: int = 6) -> Path:
    """Write a page with the same line several times."""
    image = Image.new("RGB", (480, 480), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(22)
    for number in range(count):
        draw.text((16, 16 + number * 33), line, fill="black", font=font)
    image.save(path)
    return path


class MemoReader(Reader):
    """Reads each page under each setting once, to its end: what is planted is then looked for at no cost."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.memo: dict[Attempt, Reading] = {}

    def read(self, attempt: Attempt, *_: object, **__: object) -> Reading:
        if attempt not in self.memo:
            self.memo[attempt] = super().read(attempt)
        return self.memo[attempt]

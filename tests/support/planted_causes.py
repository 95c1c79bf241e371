"""Pages on which the causes of `why` show, and what our engine writes under each.

Lines that repeat bring n-gram rules into play; a strip is cut into more than six tiles; some pages need EXIF.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.models.family import FIRST
from dsocr_core.page.documents import Page
from dsocr_core.settings import InferSettings, Settings
from dsocr_core.trace.why.attempt import Attempt
from dsocr_core.trace.why.reader import Reader, Reading

TOKENS = 120
BY_NAME = {each.name: each for each in FIRST.hypotheses}


@dataclass(frozen=True)
class MadePage:
    """A page and how A reads it."""

    path: Path
    preset: str = "tiny"
    dtype: str = "float32"

    @property
    def opened(self) -> Page:
        return Page(self.path, self.path.name)


_LINES = (
    ("green boats near the old pier",) * 6,
    ("one two three four five six seven",) * 4,
    ("blue gate, white gate, blue gate",) * 4,
)
_TURNED = (("north road station opens at nine",) * 4, ("quiet please",) * 3)
_STRIPS = ((700, 96, ("green boats near the old pier",)), (90, 720, ("red", "blue", "red", "blue", "red")))


def made_pages(directory: Path) -> tuple[MadePage, ...]:
    """Eight pages: three with lines that repeat, one also in bfloat16; two turned by EXIF; two strips."""
    pages = [
        MadePage(drawn(directory / f"lines-{number}.png", (480, 480), lines, 22))
        for number, lines in enumerate(_LINES)
    ]
    pages.append(MadePage(pages[-1].path, dtype="bfloat16"))
    for number, (lines, turned) in enumerate(zip(_TURNED, (6, 8), strict=True)):
        pages.append(MadePage(drawn(directory / f"turned-{number}.jpg", (480, 480), lines, 22, turned)))
    for number, (width, height, lines) in enumerate(_STRIPS):
        path = drawn(directory / f"strip-{number}.png", (width, height), lines, 22)
        pages.append(MadePage(path, "gundam"))
    return tuple(pages)


def drawn(path: Path, size: tuple[int, int], lines: Sequence[str], px: int, turned: int = 0) -> Path:
    """Write a page with these lines, stored so that turning it by its EXIF tag gives the page back."""
    image = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(px)
    for number, line in enumerate(lines):
        draw.text((16, 16 + number * px * 3 // 2), line, fill="black", font=font)
    exif = Image.Exif()
    if turned:
        exif[274] = turned
        image = image.rotate({3: 180, 6: 90, 8: 270}[turned], expand=True)
    image.save(path, exif=exif, **({"quality": 95} if turned else {}))
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


def settings_of(page: MadePage, tokens: int = TOKENS) -> Settings:
    infer = InferSettings(max_new_tokens=tokens)
    return Settings(preset=page.preset, prompt="free_ocr", device="cpu", dtype=page.dtype, infer=infer)

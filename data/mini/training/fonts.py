"""The typefaces of the drawn pages: where their files are, and glyphs measured and drawn once per size.

Matplotlib brings DejaVu and the Times-like STIX; Roboto and Source Serif come from packages of their own.
"""

import importlib.resources
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from PIL import ImageFont

FACES_KEPT = 600  # some 100 kB each

# Package of the files, folder in it, and the prefix of the names it serves.
SOURCES = (
    ("DejaVu", "matplotlib", "mpl-data/fonts/ttf"),
    ("STIX", "matplotlib", "mpl-data/fonts/ttf"),
    ("Roboto", "font_roboto", "files"),
    ("SourceSerifPro", "font_source_serif_pro", "files"),
)


@dataclass(frozen=True)
class Family:
    """The faces of one design: names of font files, and how often pages are set in it."""

    weight: float
    regular: str
    bold: str
    italic: str


FAMILIES = (
    Family(4.0, "STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic"),
    Family(4.0, "Roboto-Regular", "Roboto-Bold", "Roboto-Italic"),
    Family(1.0, "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique"),
    Family(1.0, "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    Family(1.2, "SourceSerifPro-Regular", "SourceSerifPro-Bold", "SourceSerifPro-It"),
    Family(0.8, "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
)


@cache
def font_file(name: str) -> Path:
    """The file of a face. Raises ModuleNotFoundError naming the package that is not installed."""
    package, folder = next(
        (package, folder) for prefix, package, folder in SOURCES if name.startswith(prefix)
    )
    try:
        root = importlib.resources.files(package)
    except ModuleNotFoundError:
        wanted = package.replace("_", "-")
        raise ModuleNotFoundError(
            f"drawing pages needs {wanted}: pip install -r requirements-dev.txt"
        ) from None
    return Path(str(root / folder / f"{name}.ttf"))


class Stamp(NamedTuple):
    """A drawn glyph: its coverage, and where its corners lie from the pen on the baseline."""

    coverage: Any  # Pillow's core image; it has no public type
    x1: int
    y1: int
    x2: int
    y2: int


class _Advances(dict[str, int]):
    """Characters to whole px, asked of FreeType once."""

    def __init__(self, font: ImageFont.FreeTypeFont) -> None:
        self._font = font

    def __missing__(self, character: str) -> int:
        self[character] = known = round(self._font.getlength(character))
        return known


class _Stamps(dict[str, Stamp]):
    """Characters to drawn glyphs, drawn by FreeType once."""

    def __init__(self, font: ImageFont.FreeTypeFont) -> None:
        self._font = font

    def __missing__(self, character: str) -> Stamp:
        coverage, (x, y) = self._font.getmask2(character, "L", anchor="ls")
        width, height = coverage.size
        self[character] = known = Stamp(coverage, x, y, x + width, y + height)
        return known


class Face:
    """A font at one size. Advances are whole px and unkerned, so a line is the sum of its glyphs."""

    def __init__(self, name: str, size_px: int) -> None:
        # Basic layout: every machine draws the same glyphs.
        font = ImageFont.truetype(str(font_file(name)), size_px, layout_engine=ImageFont.Layout.BASIC)
        self.size_px = size_px
        self.advances = _Advances(font)
        self.stamps = _Stamps(font)

    def width(self, text: str) -> int:
        """Width of a line in px."""
        return sum(map(self.advances.__getitem__, text))

    def wrap(self, text: str, width_px: float, indent_px: int = 0) -> list[str]:
        """Greedy line breaking at spaces, the first line narrower; a single word may be wider than a line."""
        lines: list[str] = []
        space = self.advances[" "]
        used = indent_px
        for word in text.split():
            width = self.width(word)
            if lines and used + space + width <= width_px:
                lines[-1] += " " + word
                used += space + width
            else:
                used = width + (0 if lines else indent_px)
                lines.append(word)
        return lines


@lru_cache(FACES_KEPT)
def face(name: str, size_px: int) -> Face:
    """A face at a size; the most recent ones are kept with their glyphs."""
    return Face(name, size_px)

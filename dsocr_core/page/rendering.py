"""PDF files counted and rendered by PDFium. Runs in a worker: see decode_pool.py."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr_core.page.decoding import Unreadable, cause

MOST_PAGES = 20_000
"""Most pages of one PDF: a file of a kilobyte may claim any number."""

_POINTS_PER_INCH = 72


def page_count(path: Path) -> int:
    """Pages of a PDF. Raises Unreadable."""
    with _opened(path) as document:
        count = len(document)
    if count < 1:
        raise Unreadable("the PDF has no pages; save it anew")
    if count > MOST_PAGES:
        raise Unreadable(f"the PDF has {count:,} pages; at most {MOST_PAGES:,} are read; split it")
    return int(count)


def render(path: Path, number: int, dpi: int, max_pixels: int) -> Image.Image:
    """Page `number` (from 1) in RGB. Raises Unreadable."""
    import pypdfium2

    scale = dpi / _POINTS_PER_INCH
    with _opened(path) as document:
        try:
            if not 1 <= number <= len(document):
                raise Unreadable(f"has no page {number}; it has {len(document)}")
            scale *= _user_unit(path, document, number - 1)
            document.init_forms()  # what was typed into fields is drawn
            page = document[number - 1]
            width, height = page.get_size()
            pixels = width * scale * height * scale
            if not pixels <= max_pixels:
                raise Unreadable(
                    f"page {number} has {pixels:,.0f} pixels at {dpi} dpi, more than the limit of "
                    f"{max_pixels:,}; lower pdf_dpi"
                )
            image: Image.Image = page.render(scale=scale).to_pil()
            return image.convert("RGB")
        except (pypdfium2.PdfiumError, MemoryError, ValueError) as error:
            raise Unreadable(f"page {number} cannot be rendered ({cause(error)})") from error


CELL_GAP = 0.7
"""Share of a line's height: a wider gap parts a table's cells, a narrower one words."""
MOST_RUNS, MOST_CHARACTERS = 4000, 60_000
"""Limits of one page's text layer: what a page may show, many times over. The rest is left out."""


def text_layer(path: Path, number: int) -> tuple[float, float, list[tuple[float, float, float, float, str]]]:
    """Width and height in points of page `number` (from 1), and its runs of text in the file's order.

    A run is on one line, without a gap like that between cells: left, bottom, right, top, text. Raises
    Unreadable.
    """
    import pypdfium2

    with _opened(path) as document:
        try:
            if not 1 <= number <= len(document):
                raise Unreadable(f"has no page {number}; it has {len(document)}")
            page = document[number - 1]
            return *page.get_size(), _runs(page.get_textpage())
        except (pypdfium2.PdfiumError, MemoryError, ValueError) as error:
            raise Unreadable(f"the text of page {number} cannot be read ({cause(error)})") from error


def _runs(text: Any) -> list[tuple[float, float, float, float, str]]:
    """Runs of a PDFium text page, whose own characters part words and lines."""
    from pypdfium2.raw import FPDFText_GetUnicode

    runs: list[tuple[float, float, float, float, str]] = []
    left = bottom = right = top = 0.0
    words = ""
    for index in range(min(text.count_chars(), MOST_CHARACTERS)):
        code = FPDFText_GetUnicode(text, index)
        character = chr(code) if code < _CODES else "\ufffd"
        # As high as the font is, whichever letters there are.
        box = text.get_charbox(index, loose=True)
        if character.isspace():
            box = right, bottom, right, top
        height = max(top - bottom, 0.1)
        middle, gap = (box[1] + box[3]) / 2, box[0] - right
        if words and (
            character in "\r\n" or not (bottom <= middle <= top and -height <= gap <= CELL_GAP * height)
        ):
            runs.append((left, bottom, right, top, words))
            if len(runs) == MOST_RUNS:
                return runs
            words = ""
        if not words:
            if character.isspace():
                continue
            left, bottom, right, top = box
        words += character
        right, bottom, top = max(right, box[2]), min(bottom, box[1]), max(top, box[3])
    return [*runs, (left, bottom, right, top, words)] if words else runs


_CODES = 0x110000


def _user_unit(path: Path, document: Any, index: int) -> float:
    """Points that one unit of a page has, 1 where none is given; PDFium passes its UserUnit over.

    A copy of the page alone, as PDFium writes it, has its dictionary in plain text.
    """
    import pypdfium2

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"/UserUnit") < 0 and content.find(b"/ObjStm") < 0:  # packed objects may hide it
            return 1.0
    alone, copy = pypdfium2.PdfDocument.new(), BytesIO()
    try:
        alone.import_pages(document, [index])
        alone.save(copy)
    finally:
        alone.close()
    found = re.search(rb"/UserUnit\s*(\d{0,9}\.?\d{1,9})", copy.getvalue())
    return (float(found[1]) if found else 0) or 1.0


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A pypdfium2 document. Raises Unreadable."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("the PDF needs a password; save a copy without one") from None
        raise Unreadable(f"not a readable PDF ({cause(error)}); save it anew") from error
    except OSError as error:
        raise Unreadable(f"cannot be read ({cause(error)})") from error
    try:
        yield document
    finally:
        document.close()

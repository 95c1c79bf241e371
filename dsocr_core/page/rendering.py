"""PDF files counted and rendered by PDFium. Runs in a process with limits: see decode_pool.py."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr_core.page.decoding import Unreadable, cause

MOST_PAGES = 20_000
"""Most pages of one PDF: a file of a kilobyte may claim any number."""


def page_count(path: Path) -> int:
    """Pages of a PDF. Raises Unreadable."""
    with _opened(path) as document:
        count = len(document)
    if count < 1:
        raise Unreadable("the PDF has no pages; save it again")
    if count > MOST_PAGES:
        raise Unreadable(f"the PDF has {count:,} pages; at most {MOST_PAGES:,} are read; split it")
    return int(count)


def render(path: Path, number: int, dpi: int, max_pixels: int) -> Image.Image:
    """Page `number` (from 1) in RGB. Raises Unreadable."""
    with _opened(path, number, "cannot be rendered") as document:
        scale = dpi / 72 * _user_unit(path, document, number - 1)
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


def _user_unit(path: Path, document: Any, index: int) -> float:
    """Points that one unit of a page has, 1 where none is given; PDFium passes its UserUnit over.

    A copy of the page alone, as PDFium writes it, has its dictionary in plain text.
    """
    import pypdfium2

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"/UserUnit") < 0 and content.find(b"/ObjStm") < 0:  # packed objects may hide it
            return 1.0
    copy = BytesIO()
    with closing(pypdfium2.PdfDocument.new()) as alone:
        alone.import_pages(document, [index])
        alone.save(copy)
    found = re.search(rb"/UserUnit\s*(\d{0,9}\.?\d{1,9})", copy.getvalue())
    return (float(found[1]) if found else 0) or 1.0


@contextmanager
def _opened(path: Path, number: int = 0, failure: str = "") -> Iterator[Any]:
    """A pypdfium2 document that has page `number`; what goes wrong with that is a `failure`.

    Raises Unreadable.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("the PDF needs a password; save a copy without one") from None
        raise Unreadable("not a readable PDF; save it again") from error
    except OSError as error:
        raise Unreadable(f"cannot be read ({cause(error)})") from error
    with closing(document):
        if not number <= len(document):
            raise Unreadable(f"has no page {number}; it has {len(document)}")
        try:
            yield document
        except (pypdfium2.PdfiumError, MemoryError, ValueError) as error:
            raise Unreadable(f"page {number} {failure} ({cause(error)})") from error

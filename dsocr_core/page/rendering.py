"""PDF files counted and rendered by PDFium. Runs in a process with limits: see decode_pool.py."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image

from dsocr_core.page.decoding import MOST_PAGES, Unreadable, cause


def page_count(path: Path) -> int:
    """Count the pages of a PDF. Raises Unreadable."""
    with closing(_opened(path)) as document:
        count = len(document)
    if count < 1:
        raise Unreadable("the PDF has no pages; save it again")
    if count > MOST_PAGES:
        raise Unreadable(f"the PDF has {count:,} pages; at most {MOST_PAGES:,} are read; split it")
    return int(count)


def render(path: Path, number: int, dpi: int, max_pixels: int) -> Image.Image:
    """Render page `number` (from 1) of a PDF in RGB. Raises Unreadable."""
    with closing(_opened(path)) as document:
        if number > len(document):
            raise Unreadable(f"has no page {number}; it has {len(document)}")
        try:
            document.init_forms()  # draws what was typed into form fields
            page = document[number - 1]
            width, height = page.get_size()
            pixels = width * height * (dpi / 72) ** 2
            if not pixels <= max_pixels:
                size = f"page {number} has {pixels:,.0f} pixels at {dpi} dpi"
                raise Unreadable(f"{size}, more than the limit of {max_pixels:,}; lower pdf_dpi")
            image: Image.Image = page.render(scale=dpi / 72).to_pil()
            return image.convert("RGB")
        except (pypdfium2.PdfiumError, MemoryError, ValueError) as error:
            raise Unreadable(f"page {number} cannot be rendered ({cause(error)})") from error


def _opened(path: Path) -> Any:
    """Open a PDF. Raises Unreadable."""
    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("the PDF needs a password; save a copy without one") from None
        raise Unreadable(f"not a readable PDF ({cause(error)}); save it again") from error

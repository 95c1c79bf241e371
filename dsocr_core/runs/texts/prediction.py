"""A text that another program wrote for a page, and what of a folder is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsocr_core.base.errors import DsocrError


class PredictionError(DsocrError):
    """A folder, or a page of it, that cannot be had; says why and what to give."""


@dataclass(frozen=True)
class Piece:
    """One of the pages of a document whose texts stand in one file, without their numbers."""

    document: str
    """The PDF's name without its suffix."""
    index: int
    """From 1, among the pages that are there: pages may have been left out before it."""
    count: int
    layouts: Path | None
    """A PDF with the pictures of the same pages, boxes drawn on them."""


@dataclass(frozen=True)
class Prediction:
    """A text of a page."""

    name: str
    """Name of the page as far as the files say: a relative path without the suffix of the text."""
    text: str
    has_markup: bool
    """True where it is as the model wrote it, with its boxes."""
    file: Path
    writer: str
    """The program that leaves such files, in words."""
    piece: Piece | None = None
    picture: Path | None = None
    """The page with its boxes drawn, of the page's own size."""


@dataclass(frozen=True)
class Left:
    """A file that gives no text, and why."""

    file: Path
    reason: str


@dataclass(frozen=True)
class Found:
    """All there is in a folder."""

    root: Path
    predictions: tuple[Prediction, ...]
    left: tuple[Left, ...]


PAGE_END = "\n\n<--- Page Split --->\n"
"""Line that the PDF script writes after each page."""
RAW, CLEAN, WITH_BOXES = "result_ori.mmd", "result.mmd", "result_with_boxes.jpg"
RAW_SUFFIX, PDF_RAW, PDF_CLEAN, LAYOUTS = "_det", "_det.mmd", ".mmd", "_layouts.pdf"

IMAGE_WRITER = "run_dpsk_ocr_image.py"
PDF_WRITER = "run_dpsk_ocr_pdf.py"
EVAL_WRITER = "run_dpsk_ocr_eval_batch.py"


def pages_of(text: str) -> list[str]:
    """The pages of a PDF's text, in order; what follows the last mark is a page only if it has words."""
    pages = text.split(PAGE_END)
    return pages if pages[-1].strip() else pages[:-1]

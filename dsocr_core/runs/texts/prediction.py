"""A text that another program wrote for a page, and what of a folder is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsocr_core.base.errors import DsocrError


class PredictionError(DsocrError):
    """A folder, or a page of it, that cannot be had; says why and what to give."""


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
RAW, CLEAN, RAW_SUFFIX = "result_ori.mmd", "result.mmd", "_det"

IMAGE_WRITER = "run_dpsk_ocr_image.py"
EVAL_WRITER = "run_dpsk_ocr_eval_batch.py"

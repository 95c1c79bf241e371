"""What the pages ask of the core about files and results, in the pages' own terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.errors import DsocrError
from dsocr_core.records import Box, OcrResult
from dsocr_core.settings import Settings

if TYPE_CHECKING:
    from PIL import Image


def changed_ns(path: Path) -> int:
    """When the file last changed. Raises DsocrError when it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise DsocrError(f"{path.name}: cannot be read ({error.strerror})") from error


def load_page(path: Path) -> Image.Image:
    """The page upright and RGB, as both roads see it. Raises DsocrError."""
    from dsocr_core.inputs.documents import load_image

    return load_image(path, Settings().max_pixels)


def boxes_of(result: OcrResult) -> list[Box]:
    """The boxes of one result."""
    raise NotImplementedError


def label_colour(label: str) -> str:
    raise NotImplementedError

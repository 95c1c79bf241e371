"""The clean picture of a page in a run: what a review shows where the source file is gone.

`clean/<SHA-256 of the source file>.jpg`. It may be smaller than the page; boxes stay in the page's pixels.
JPEG: WebP takes 12 times as long for half the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from PIL import Image

from dsocr_core.base.system import memory_file
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.records import OcrRequest

FOLDER = "clean"
MOST_SIDE = 3000  # pixels of the longer side; a larger page is halved, or made a third and so on
MOST_BYTES = 1024 * 1024
_TRIES = ((MOST_SIDE, 80), (MOST_SIDE, 50), (1400, 50))  # side and quality; of the last noise has 0.8 MiB


def clean_pages(request: OcrRequest, pictures: Sequence[Image.Image]) -> dict[str, bytes]:
    """Path in a run -> JPEG of the RGB pictures of a request's pages, but for those whose file is gone."""
    paths = [clean_path(file.sha256 if file else None) for file in files_of(request)]
    return {path: _encoded(picture) for path, picture in zip(paths, pictures, strict=False) if path}


def clean_path(sha256: str | None) -> str | None:
    """The path in a run of the page of a source file of that content; None for what is no SHA-256."""
    return f"{FOLDER}/{sha256}.jpg" if sha256 and re.fullmatch("[0-9a-f]{64}", sha256) else None


def _encoded(picture: Image.Image) -> bytes:
    for side, quality in _TRIES:
        factor = -(-max(picture.size) // side)
        # Averages of whole pixels: a better filter takes 10 times as long. By 1 Pillow would copy.
        made = jpeg(picture.reduce(factor) if factor > 1 else picture, quality=quality)
        if len(made) <= MOST_BYTES:
            break
    return made


def jpeg(picture: Image.Image, **options: Any) -> bytes:
    """The picture as JPEG, by way of a file: while Pillow encodes into a buffer no other thread runs."""
    with memory_file() as file:
        picture.save(file, "JPEG", **options)
        file.seek(0)
        return file.read()

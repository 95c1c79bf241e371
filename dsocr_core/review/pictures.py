"""Pictures of pages, and the picture with both sides' boxes drawn on it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.page.documents import DEFAULT_MAX_PIXELS, load_image
from dsocr_core.reading.artifacts import BACKENDS, page_key, result_image
from dsocr_core.reading.clean import clean_path, is_clean_page
from dsocr_core.reading.markup import SCALE, Box
from dsocr_core.reading.records import VENDOR, OcrRequest, PageFile
from dsocr_core.review.page import PageReview
from dsocr_core.runs.history import History
from dsocr_core.runs.storage import is_entry_name

MOST_BOXES = 1000

STATE_COLOURS: dict[str, tuple[int, int, int]] = {
    "matched": (100, 116, 139),
    "moved": (217, 119, 6),
    "relabelled": (124, 58, 237),
    "only_a": (37, 99, 235),
    "only_b": (192, 38, 211),
}
TEXT_COLOUR = (192, 54, 44)
"""Underlines a matched box whose text differs."""


@dataclass(frozen=True)
class PagePicture:
    """Place of a page's picture; it may be smaller than the page.

    `with_boxes`: the only one left is the artifact with boxes drawn on it.
    """

    path: Path
    with_boxes: bool
    width: int
    """Pixels after EXIF orientation; the coordinates of all boxes of the page."""
    height: int


@dataclass(frozen=True)
class _Where:
    """Facts that lead to a picture on one side."""

    run_id: str
    backend: str | None
    page: str
    request: OcrRequest
    sheet: int
    """Number of the page among those of the prompt."""

    @property
    def file(self) -> PageFile | None:
        files = (self.request.file, *self.request.more_files)
        return files[self.sheet] if self.sheet < len(files) else None

    @property
    def image(self) -> Path | None:
        return self.request.images[self.sheet] if self.sheet < len(self.request.images) else None


def find_picture(
    history: History,
    page: PageReview,
    runs: tuple[tuple[str, str | None], tuple[str, str | None]],
    sheet: int = 0,
) -> PagePicture | None:
    """The page's source file where that is still the recorded one, else the runs' own picture of the page.

    That is its clean picture, else an artifact. `runs` are both sides' run and backend, `sheet` numbers the
    pages of one prompt.
    """
    size = page.size_of(sheet)
    sides = [
        _Where(run_id, backend, name, side.request if side else page.comparison.request, sheet)
        for (run_id, backend), name, side in reversed(
            list(zip(runs, page.names, (page.a, page.b), strict=True))
        )
        if name is not None
    ]
    for with_boxes, path in chain(_sources(sides), _clean(history, sides, size), _artifacts(history, sides)):
        if size is None:
            with contextlib.suppress(DsocrError):
                size = load_image(path, DEFAULT_MAX_PIXELS).size
        if size is not None and size[0] and size[1]:
            return PagePicture(path, with_boxes, size[0], size[1])
    return None


def _sources(sides: Sequence[_Where]) -> Iterator[tuple[bool, Path]]:
    """Files at a recorded path whose content is the recorded one."""
    for side in sides:
        if side.image and (path := source_of(side.image, side.file)) is not None:
            yield False, path


def source_of(image: Path, file: PageFile | None) -> Path | None:
    """The file that a page was read from, where its content is still the recorded one."""
    if file is None:
        return None
    return next((path for path in _paths_of(image) if _is_file(path, file.sha256)), None)


def _paths_of(path: Path) -> tuple[Path, ...]:
    """A recorded path as it is and, a relative one, in the project; the samples lie in every clone."""
    return (*dict.fromkeys((path, PROJECT_ROOT / path, PROJECT_ROOT / "data" / "samples" / path.name)),)


def _is_file(path: Path, sha256: str) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == sha256
    except (OSError, ValueError):
        return False


def _clean(
    history: History, sides: Sequence[_Where], size: tuple[int, int] | None
) -> Iterator[tuple[bool, Path]]:
    """The runs' clean pictures of a page; one that no run of this project wrote is passed over."""
    for side in sides:
        relative = clean_path(side.file.sha256 if side.file else None)
        if relative is None or size is None:
            continue
        with contextlib.suppress(DsocrError, OSError):
            path = history.file(side.run_id, relative)
            if is_clean_page(path, *size):
                yield False, path


def _artifacts(history: History, sides: Sequence[_Where]) -> Iterator[tuple[bool, Path]]:
    """The runs' own pictures of a page, which have one side's boxes on them."""
    for side in sides:
        folders = ["vendor/viz", "viz"] if side.backend == VENDOR else ["viz", "vendor/viz"]
        if side.backend not in (None, VENDOR) and is_entry_name(side.backend):
            folders.insert(0, f"{BACKENDS}/{side.backend}/viz")
        keys = [_key(path) for path in _paths_of(side.request.image)]
        keys.append(hashlib.md5(side.page.encode(errors="replace"), usedforsecurity=False).hexdigest())
        image = result_image(side.request.form, side.sheet)
        for name in (f"{folder}/{key}/{image}" for folder in folders for key in dict.fromkeys(keys)):
            with contextlib.suppress(DsocrError, OSError):
                yield True, history.file(side.run_id, name)


def _key(path: Path) -> str:
    try:
        return page_key(path)
    except (OSError, ValueError, RuntimeError):
        return "none"


def page_image(picture: PagePicture, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image.Image:
    """The picture as RGB, EXIF applied, in the page's size. Raises DsocrError when it cannot be read."""
    image = load_image(picture.path, max_pixels)
    size = (picture.width, picture.height)
    return image if image.size == size or size[0] * size[1] > max_pixels else image.resize(size)


def overlay(picture: PagePicture | None, page: PageReview, side: int) -> bytes:
    """A JPEG of the page with the boxes of both sides, at most `side` pixels long.

    Of several pages of a prompt it is the first. Outlines in the colour of the pair's state, A's solid and
    B's dashed where they differ. On an empty sheet when there is no picture. Raises DsocrError when the
    picture cannot be read.
    """
    width, height = _sheet(picture, page)
    scale = min(1.0, side / max(width, height))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    if picture is None:
        image = Image.new("RGB", small, "white")
    else:
        image = load_image(picture.path).resize(small, Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(image)
    for pair in [pair for pair in page.pairs if pair.page == 0][:MOST_BOXES]:
        colour = STATE_COLOURS[pair.state]
        if pair.b is not None and pair.state != "matched":
            _dashed(pen, _corners(pair.b, scale, small), colour)
        if pair.a is not None:
            x1, _, x2, y2 = corners = _corners(pair.a, scale, small)
            pen.rectangle(corners, outline=colour, width=1 + (pair.state != "matched"))
            if pair.state == "matched" and pair.b is not None and pair.a.text.strip() != pair.b.text.strip():
                pen.line((x1, y2 + 2, x2, y2 + 2), fill=TEXT_COLOUR, width=3)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=75, optimize=True)
    return buffer.getvalue()


def data_uri(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def _sheet(picture: PagePicture | None, page: PageReview) -> tuple[int, int]:
    if picture is not None:
        return picture.width, picture.height
    return page.size or (SCALE, SCALE)


def _corners(box: Box, scale: float, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """In pixels of the small picture; far corners just outside of it."""
    x1, x2 = (min(max(round(x * scale), -2), size[0] + 1) for x in (box.x1, box.x2))
    y1, y2 = (min(max(round(y * scale), -2), size[1] + 1) for y in (box.y1, box.y2))
    return x1, y1, x2, y2


def _dashed(
    pen: ImageDraw.ImageDraw, corners: tuple[int, int, int, int], colour: tuple[int, int, int], dash: int = 6
) -> None:
    x1, y1, x2, y2 = corners
    for x in range(x1, x2, 2 * dash):
        for y in (y1, y2):
            pen.line((x, y, min(x + dash, x2), y), fill=colour, width=2)
    for y in range(y1, y2, 2 * dash):
        for x in (x1, x2):
            pen.line((x, y, x, min(y + dash, y2)), fill=colour, width=2)

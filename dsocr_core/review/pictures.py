"""Pictures of pages, and the picture with both sides' boxes drawn on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.sanitise import encodable
from dsocr_core.page.documents import DEFAULT_MAX_PIXELS, load_image
from dsocr_core.reading.artifacts import BACKENDS, folder_key, result_image
from dsocr_core.reading.clean import clean_path, jpeg
from dsocr_core.reading.fingerprints import read_file
from dsocr_core.reading.markup import SCALE, Box
from dsocr_core.reading.records import VENDOR, OcrRequest, PageFile
from dsocr_core.review.page import PageReview
from dsocr_core.runs.history import History
from dsocr_core.runs.storage import is_entry_name

MOST_BOXES = 1000

STATE_COLOURS: dict[str, tuple[int, int, int]] = {
    "matched": (100, 116, 139), "moved": (217, 119, 6), "relabelled": (124, 58, 237),
    "only_a": (37, 99, 235), "only_b": (192, 38, 211),
}  # fmt: skip
TEXT_COLOUR = (192, 54, 44)
"""Underlines a matched box whose text differs."""


@dataclass(frozen=True)
class PagePicture:
    """Place of a page's picture. It may be smaller than the page.

    `with_boxes`: the only one left is the artifact with boxes drawn on it.
    """

    path: Path
    with_boxes: bool
    width: int  # pixels after EXIF orientation; the coordinates of all boxes of the page
    height: int


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
        (run, backend, name, result.request if result else page.comparison.request)
        for (run, backend), name, result in zip(runs, page.names, (page.a, page.b), strict=True)
        if name is not None
    ][::-1]
    for path, with_boxes in _pictures(history, sides, sheet, size):
        if size is None:
            with contextlib.suppress(DsocrError):
                size = load_image(path, DEFAULT_MAX_PIXELS).size
        if size is not None and all(size):
            return PagePicture(path, with_boxes, *size)
    return None


def _pictures(
    history: History,
    sides: Sequence[tuple[str, str | None, str, OcrRequest]],
    sheet: int,
    size: tuple[int, int] | None,
) -> Iterator[tuple[Path, bool]]:
    """Pictures of a page and whether boxes are drawn on them: sources, then clean ones, then artifacts."""
    there = [(run, [request.file, *request.more_files], request.images) for run, *_, request in sides]
    there = [(run, files[sheet : sheet + 1], images[sheet : sheet + 1]) for run, files, images in there]
    for _, files, images in there:
        for file, image in zip(files, images, strict=False):
            if (source := source_of(image, file)) is not None:
                yield source, False
    for run_id, files, _ in there:
        clean = clean_path(files[0].sha256 if files and files[0] else None)
        with contextlib.suppress(DsocrError, OSError):
            if clean and (path := history.directory(run_id) / clean).is_file():
                yield path, False
    for run_id, backend, page, request in sides:
        folders = ["vendor/viz", "viz"] if backend == VENDOR else ["viz", "vendor/viz"]
        if backend not in (None, VENDOR) and is_entry_name(backend):
            folders.insert(0, f"{BACKENDS}/{backend}/viz")
        keys = dict.fromkeys([*map(_key, _paths_of(request.image)), folder_key(encodable(page))])
        picture = result_image(request.form, sheet)
        for name in (f"{folder}/{key}/{picture}" for folder in folders for key in keys):
            with contextlib.suppress(DsocrError, OSError):
                if (path := history.directory(run_id) / name).is_file():
                    yield path, True


def source_of(image: Path, file: PageFile | None) -> Path | None:
    """The file that a page was read from, where its content is still the recorded one."""
    for path in _paths_of(image) if file else ():
        with contextlib.suppress(OSError, ValueError, DsocrError):
            if path.is_file() and file and read_file(path).sha256 == file.sha256:
                return path
    return None


def _paths_of(path: Path) -> tuple[Path, ...]:
    """A recorded path as it is and, a relative one, in the project; the samples lie in every clone."""
    return (*dict.fromkeys((path, PROJECT_ROOT / path, PROJECT_ROOT / "data" / "samples" / path.name)),)


def _key(path: Path) -> str:
    try:
        return folder_key(str(path.resolve()))
    except (OSError, ValueError, RuntimeError):
        return "none"


def overlay(picture: PagePicture | None, page: PageReview, side: int) -> bytes:
    """A JPEG of the page with the boxes of both sides, at most `side` pixels long.

    Of several pages of a prompt it is the first. Outlines in the colour of the pair's state; where they
    differ A's is thick and B's thin. On an empty sheet when there is no picture. Raises DsocrError when the
    picture cannot be read.
    """
    width, height = (picture.width, picture.height) if picture else page.size_of(0) or (SCALE, SCALE)
    scale = min(1.0, side / max(width, height))
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    image = Image.new("RGB", small, "white")
    if picture is not None:
        image = load_image(picture.path).resize(small, Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(image)

    def corners(box: Box) -> tuple[int, int, int, int]:
        """In pixels of the small picture; far corners just outside of it."""
        x1, x2 = (min(max(round(x * scale), -2), small[0] + 1) for x in (box.x1, box.x2))
        y1, y2 = (min(max(round(y * scale), -2), small[1] + 1) for y in (box.y1, box.y2))
        return x1, y1, x2, y2

    for pair in [pair for pair in page.pairs if pair.page == 0][:MOST_BOXES]:
        colour, matched = STATE_COLOURS[pair.state], pair.state == "matched"
        if pair.b is not None and not matched:
            pen.rectangle(corners(pair.b), outline=colour, width=1)
        if pair.a is not None:
            x1, _, x2, y2 = of_a = corners(pair.a)
            pen.rectangle(of_a, outline=colour, width=1 if matched else 3)
            if matched and pair.b is not None and pair.a.text.strip() != pair.b.text.strip():
                pen.line((x1, y2 + 2, x2, y2 + 2), fill=TEXT_COLOUR, width=3)
    return jpeg(image, quality=75, optimize=True)

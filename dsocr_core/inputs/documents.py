"""Pages from what people have: images, folders and PDFs, opened without trusting them."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.inputs.decoding import Unreadable, cause
from dsocr_core.inputs.opener import count_pages, open_image, render_page
from dsocr_core.outside.visible import name_text

DEFAULT_MAX_PIXELS = 100_000_000
DEFAULT_PDF_DPI = 150
"""An A4 page becomes 1240 x 1754 pixels."""

IMAGE_SUFFIXES = frozenset({
    ".png", ".jpg", ".jpeg", ".jfif", ".mpo", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".gif", ".jp2",
    ".ppm", ".pgm", ".pbm", ".avif",
})  # fmt: skip
PDF_SUFFIX = ".pdf"


class DocumentError(DsocrError):
    """A file that cannot be read as a page: names the file, the cause and the way out."""


# --- images ---------------------------------------------------------------------------------------


def load_image(path: Path, max_pixels: int = DEFAULT_MAX_PIXELS, exif: bool = True) -> Image.Image:
    """The page in a file as the published code opens it: EXIF orientation applied, then RGB.

    Without `exif` it stays as it is stored, as some other engines open it.

    Opened in a process with limits (opener.py); the size in the header is held against `max_pixels` before
    anything is decoded. Raises DocumentError.
    """
    path = Path(path)
    try:
        return open_image(path, max_pixels, exif)
    except MemoryError as error:
        raise DocumentError(f"{path}: too large for this machine's memory; make it smaller") from error
    except Unreadable as error:
        _check_file(path)  # says more of a file that cannot be an image
        raise DocumentError(f"{path}: {error}") from error


def _check_file(path: Path) -> None:
    """Raises DocumentError unless the path is a regular file with content."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DocumentError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path}: cannot be read ({cause(error)})") from error
    if stat.S_ISDIR(status.st_mode):
        raise DocumentError(f"{path}: is a folder; give the image in it")
    if not stat.S_ISREG(status.st_mode):
        raise DocumentError(f"{path}: is not a regular file; copy it to one")
    if status.st_size == 0:
        raise DocumentError(f"{path}: the file is empty; copy or download it again")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({cause(error)}); check its permissions") from error


# --- PDFs -----------------------------------------------------------------------------------------


def pdf_page_count(path: Path) -> int:
    """Pages of a PDF. Raises DocumentError."""
    _check_file(path)
    try:
        return count_pages(path)
    except Unreadable as error:
        raise DocumentError(f"{path}: {error}") from error


def render_pdf_page(
    path: Path,
    number: int,
    directory: Path,
    dpi: int = DEFAULT_PDF_DPI,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Path:
    """Page `number` (from 1) of a PDF as a PNG in `directory`, found again when it is there.

    The name holds a hash of the PDF's content, so it is the same on every call. Raises DocumentError.
    """
    name = re.sub(r"[^\w.-]+", "_", path.stem)[:40]
    target = directory / f"{name}-{_content_hash(path)}-p{number:04d}-{dpi}dpi.png"
    if target.is_file():
        return target
    try:
        image = render_page(path, number, dpi, max_pixels)
    except Unreadable as error:
        raise DocumentError(f"{path}: {error}") from error
    temporary = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, suffix=".part", delete=False) as handle:
            temporary = Path(handle.name)
            image.save(handle, format="PNG", compress_level=1)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise DocumentError(f"{target}: the rendered page cannot be written ({cause(error)})") from error
    return target


def _content_hash(path: Path) -> str:
    _check_file(path)
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()[:16]
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({cause(error)})") from error


def parse_pages(text: str, count: int) -> list[int]:
    """Page numbers from `1-3,7` or `5-` (to the end), in the order given, each once.

    Raises DocumentError when the text is no such list or leaves 1..count.
    """
    pages: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})\s*(?:(-)\s*(\d{1,9})?\s*)?", part, re.ASCII)
        if match is None:
            raise DocumentError(f"pages '{text}': give numbers and ranges such as 1-3,7")
        first = int(match[1])
        last = first if match[2] is None else int(match[3] or count)
        if not 1 <= first <= last <= count:
            raise DocumentError(f"pages '{text}': '{part.strip()}' is not within the {count} pages there are")
        pages.update(dict.fromkeys(range(first, last + 1)))
    return list(pages)


# --- everything -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """One page image. `source` is what to call it: a file name, or `paper.pdf#3`; `a/page.png` where two
    files have one name."""

    path: Path
    source: str


@dataclass(frozen=True)
class _PdfPage:
    path: Path
    name: str
    number: int


class Pages(Sequence[Page]):
    """The requested pages, counted at once; a page of a PDF is rendered when it is taken.

    Taking one raises DocumentError when it cannot be rendered, and the next may still be taken.
    """

    def __init__(self, entries: list[Page | _PdfPage], directory: Path, dpi: int, max_pixels: int) -> None:
        self._entries = entries
        self._directory, self._dpi, self._max_pixels = directory, dpi, max_pixels

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Page: ...
    @overload
    def __getitem__(self, index: slice) -> Pages: ...
    def __getitem__(self, index: int | slice) -> Page | Pages:
        if isinstance(index, slice):
            return Pages(self._entries[index], self._directory, self._dpi, self._max_pixels)
        entry = self._entries[index]
        if isinstance(entry, Page):
            return entry
        image = render_pdf_page(entry.path, entry.number, self._directory, self._dpi, self._max_pixels)
        return Page(image, self.name(index))

    def name(self, index: int) -> str:
        """What a page is called, without rendering it."""
        entry = self._entries[index]
        return entry.source if isinstance(entry, Page) else f"{entry.name}#{entry.number}"


def expand(
    paths: Iterable[Path | str],
    pages: str | None = None,
    work_directory: Path | None = None,
    dpi: int = DEFAULT_PDF_DPI,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Pages:
    """All pages of images, folders (their images and PDFs, in natural order) and PDFs, each file once.

    `pages` picks pages of every PDF, as in `parse_pages`. PDF pages are rendered into
    `work_directory`; without one, into a temporary folder that goes when the process ends. Images are
    found here and opened later. Raises DocumentError.
    """
    entries: list[Page | _PdfPage] = []
    for file, name in _named([file for path in paths for file in _files(Path(path))]).items():
        if file.suffix.lower() == PDF_SUFFIX:
            count = pdf_page_count(file)
            numbers = range(1, count + 1) if pages is None else _pages_of(file, pages, count)
            entries += [_PdfPage(file, name, number) for number in numbers]
        else:
            entries.append(Page(file, name))
    has_pdf = any(isinstance(entry, _PdfPage) for entry in entries)
    if pages is not None and not has_pdf:
        raise DocumentError(f"pages '{pages}': none of the given files is a PDF; leave the option out")
    if work_directory is None and has_pdf:
        work_directory = Path(tempfile.mkdtemp(prefix="dsocr-pages-"))
        atexit.register(shutil.rmtree, work_directory, ignore_errors=True)
    return Pages(entries, work_directory or Path(), dpi, max_pixels)


def _named(files: Iterable[Path]) -> dict[Path, str]:
    """Each file once, with its name; as many folders before it as distinguish files of one name.

    Whatever stores pages by name would take two of one name for one page.
    """
    places: dict[Path, Path] = {}
    for file in files:
        places.setdefault(file.absolute(), file)
    groups: dict[str, list[Path]] = {}
    for place in places:
        groups.setdefault(place.name, []).append(place)
    named: dict[Path, str] = {}
    for alike in groups.values():
        taken = 1
        while len({place.parts[-taken:] for place in alike}) < len(alike):
            taken += 1
        named |= {place: name_text(Path(*place.parts[-taken:]).as_posix()) for place in alike}
    return {file: named[place] for place, file in places.items()}


def _pages_of(file: Path, pages: str, count: int) -> list[int]:
    try:
        return parse_pages(pages, count)
    except DocumentError as error:
        raise DocumentError(f"{file}: {error}") from None


def _files(path: Path) -> list[Path]:
    """The path itself, or the images and PDFs directly in a folder, in natural order."""
    try:
        if not path.is_dir():
            _check_file(path)
            return [path]
        known = IMAGE_SUFFIXES | {PDF_SUFFIX}
        found = [
            file
            for file in path.iterdir()
            if file.suffix.lower() in known and not file.name.startswith(".") and file.is_file()
        ]
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({cause(error)}); check its permissions") from error
    if not found:
        raise DocumentError(f"{path}: no images or PDFs in this folder; give one that has some")
    return sorted(found, key=lambda file: natural_key(file.name))


def natural_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts `page2` before `page10`."""
    parts = re.split(r"(\d+)", name.casefold(), flags=re.ASCII)
    return tuple((0, int(part[:18])) if part.isdigit() and part.isascii() else (1, part) for part in parts)

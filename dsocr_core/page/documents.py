"""Pages out of images, folders and PDFs, none of which is trusted."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, overload

from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import name_text
from dsocr_core.page.decode_pool import count_pages, open_image, render_page
from dsocr_core.page.decoding import Unreadable, cause
from dsocr_core.reading.writing import write_whole

log = logging.getLogger(__name__)

DEFAULT_MAX_PIXELS = 100_000_000
DEFAULT_PDF_DPI = 150
"""Resolution of rendered PDFs: an A4 page becomes 1240 x 1754 pixels."""
IMAGE_SUFFIXES = frozenset({
    ".png", ".jpg", ".jpeg", ".jfif", ".mpo", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".gif", ".jp2",
    ".ppm", ".pgm", ".pbm", ".avif",
})  # fmt: skip
PDF_SUFFIX = ".pdf"
_SHOWN = 8


class DocumentError(DsocrError):
    """A file that cannot be read as a page. Names the file, the cause and the way out."""


@contextlib.contextmanager
def _named_in_errors(path: Path) -> Iterator[None]:
    """Turn Unreadable into DocumentError, which names the file."""
    try:
        yield
    except Unreadable as error:
        _check_file(path)  # has a better message for a file that cannot be a page
        raise DocumentError(f"{path}: {error}") from error.with_traceback(None)  # holds the process
    except MemoryError as error:
        raise DocumentError(f"{path}: too large for this machine's memory; make it smaller") from error


def _check_file(path: Path) -> None:
    """Raise DocumentError unless the path is a regular file with content."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise DocumentError(f"{path}: is a folder; give the image in it")
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError(f"{path}: is not a regular file; copy it to one")
        if status.st_size == 0:
            raise DocumentError(f"{path}: the file is empty; copy or download it again")
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        raise DocumentError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise DocumentError(f"{path}: cannot be read ({cause(error)}); check its permissions") from error


def load_image(path: Path, max_pixels: int = DEFAULT_MAX_PIXELS, exif: bool = True) -> Image.Image:
    """Open a page as the published code does: EXIF orientation applied, then RGB.

    Without `exif` it is not turned, as some other engines open it. A notice about it is logged. Raises
    DocumentError.
    """
    with _named_in_errors(Path(path)):
        page = open_image(Path(path), max_pixels, exif)
    if page.animated:
        _say_once(f"{Path(path).name}: an animation, of which the first picture is read")
    return page.image


@functools.lru_cache(maxsize=10_000)
def _say_once(text: str) -> None:
    """Log a text once: a page is opened several times, for each backend and for its hashes."""
    log.warning("%s", name_text(text))


# --- files of several pages -------------------------------------------------------------------------


def pdf_page_count(path: Path) -> int:
    """Count the pages of a PDF. Raises DocumentError."""
    with _named_in_errors(path):
        return count_pages(path)


def render_pdf_page(
    path: Path, number: int, directory: Path, dpi: int = DEFAULT_PDF_DPI, max_pixels: int = DEFAULT_MAX_PIXELS
) -> Path:
    """Write page `number` (from 1) of a PDF or TIFF as a PNG into `directory`, or find it there.

    The name has a hash of the file's content, so it is the same on every call. Raises DocumentError.
    """
    _check_file(path)
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "_", path.stem)[:40]
    target = directory / f"{name}-{digest}-p{number:04d}-{dpi}dpi-forms.png"
    if target.is_file():
        return target
    with _named_in_errors(path):
        if path.suffix.lower() == PDF_SUFFIX:
            image = render_page(path, number, dpi, max_pixels)
        else:
            image = open_image(path, max_pixels, frame=number).image
    content = BytesIO()
    try:
        image.save(content, format="PNG", compress_level=1)
        write_whole(target, content.getvalue())
    except OSError as error:
        raise DocumentError(f"{target}: the rendered page cannot be written ({cause(error)})") from error
    return target


def parse_pages(text: str, count: int) -> list[int]:
    """Parse page numbers like `1-3,7` or `5-` (to the end), in the order given, each once.

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
    """One page image. `source` is its name: `a.png`, `paper.pdf#3`, `a/page.png` beside `b/page.png`."""

    path: Path
    source: str
    more: tuple[Path, ...] | None = None
    """Images of the pages after it, where several are read in one prompt; None for a page alone."""


class _Image(NamedTuple):
    """A file, and in a file of several pages the number of one, from 1."""

    path: Path
    name: str
    number: int | None = None

    @property
    def source(self) -> str:
        return self.name if self.number is None else f"{self.name}#{self.number}"


class _Prompt(NamedTuple):
    """Pages of one prompt. A file that cannot be opened has none, and its error."""

    source: str
    images: tuple[_Image, ...] = ()
    together: bool = False
    error: str = ""


def _name_of(images: Sequence[_Image]) -> str:
    """Name of several pages of one prompt: `a.png+2`, or `paper.pdf#1-3,7`."""
    first, *more = images
    if first.number is None:
        return f"{first.name}+{len(more)}" if more else first.name
    rows = groupby(enumerate(image.number or 0 for image in images), lambda each: each[1] - each[0])
    runs = ([number for _, number in row] for _, row in rows)
    return f"{first.name}#{','.join('-'.join(dict.fromkeys((str(run[0]), str(run[-1])))) for run in runs)}"


@dataclass(frozen=True, eq=False)
class Pages(Sequence[Page]):
    """The requested pages. They are counted at once; a page of a PDF or TIFF is rendered when it is taken.

    A page that cannot be opened raises DocumentError when it is taken. The others can still be taken.
    """

    prompts: Sequence[_Prompt]
    directory: Path = Path()
    dpi: int = DEFAULT_PDF_DPI
    max_pixels: int = DEFAULT_MAX_PIXELS

    def __len__(self) -> int:
        return len(self.prompts)

    @overload
    def __getitem__(self, index: int) -> Page: ...
    @overload
    def __getitem__(self, index: slice) -> Pages: ...
    def __getitem__(self, index: int | slice) -> Page | Pages:
        if isinstance(index, slice):
            return replace(self, prompts=self.prompts[index])
        prompt = self.prompts[index]
        if prompt.error:
            raise DocumentError(prompt.error)
        first, *more = (
            path
            if number is None
            else render_pdf_page(path, number, self.directory, self.dpi, self.max_pixels)
            for path, _, number in prompt.images
        )
        return Page(first, prompt.source, tuple(more) if prompt.together else None)

    @classmethod
    def recorded(cls, found: Mapping[str, Path | None]) -> Pages:
        """Images of recorded pages by name; None where a file is gone or has changed."""
        gone = "the file it was read from is not there any more, or is another: give the image"
        return cls([
            _Prompt(name, error=f"{name}: {gone}") if path is None else _Prompt(name, (_Image(path, name),))
            for name, path in found.items()
        ])  # fmt: skip

    def together(self, most: int) -> Pages:
        """Group the pages of each file, and all single images, into prompts of at most `most` pages."""
        documents: dict[object, list[_Prompt]] = {}
        for index, prompt in enumerate(self.prompts):
            image = prompt.images[0] if prompt.images else None
            document = index if image is None else None if image.number is None else image.path
            documents.setdefault(document, []).append(prompt)
        found: list[_Prompt] = []
        for prompts in documents.values():
            images = tuple(image for prompt in prompts for image in prompt.images)
            parts = [images[start : start + most] for start in range(0, len(images), most)]
            found += [_Prompt(_name_of(part), part, True) for part in parts] or prompts
        return replace(self, prompts=found)

    def only(self, names: Collection[str]) -> Pages:
        """Keep only pages of these names."""
        return replace(self, prompts=[prompt for prompt in self.prompts if prompt.source in names])

    def name(self, index: int) -> str:
        """Name a page, without rendering it."""
        return self.prompts[index].source

    def names(self, index: int) -> tuple[str, ...]:
        """Names of the pages of a prompt, without rendering them."""
        prompt = self.prompts[index]
        return tuple(image.source for image in prompt.images) or (prompt.source,)


def expand(
    paths: Iterable[Path | str],
    pages: str | None = None,
    work_directory: Path | None = None,
    dpi: int = DEFAULT_PDF_DPI,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    recursive: bool = False,
) -> Pages:
    """All pages of images, PDFs and folders (their images and PDFs in natural order), each file once.

    `recursive` takes folders below, too. `pages` chooses pages of every file that has several, as in
    `parse_pages`. They are rendered into `work_directory`, or a temporary folder. A file whose pages cannot
    be counted is one page that fails when it is taken. Raises DocumentError where there is no page.
    """
    prompts: list[_Prompt] = []
    given = [Path(path) for path in paths]
    try:
        found = [file for path in given for file in _files(path, recursive)]
    except OSError as error:
        words = f"{error.filename}: cannot be read ({cause(error)}); check its permissions"
        raise DocumentError(words) from error
    for file, name in _named(found, [path.absolute() for path in given if path.is_dir()]).items():
        try:
            if file in given:
                _check_file(file)
            prompts += (_Prompt(image.source, (image,)) for image in _images_of(file, name, pages))
        except DocumentError as error:
            prompts.append(_Prompt(name, error=str(error)))
    if prompts and all(prompt.error for prompt in prompts):
        raise DocumentError(prompts[0].error)
    numbers = [image.number for prompt in prompts for image in prompt.images]
    if pages is not None and not any(numbers) and not any(prompt.error for prompt in prompts):
        raise DocumentError(
            f"pages '{pages}': none of the given files has several pages; leave the option out"
        )
    if work_directory is None and any(numbers):
        temporary = Temporary("pages")
        work_directory = Path(temporary.name)
        atexit.register(temporary.cleanup)
    return Pages(prompts, work_directory or Path(), dpi, max_pixels)


def _images_of(file: Path, name: str, pages: str | None) -> list[_Image]:
    """Chosen pages of a file. Raises DocumentError."""
    suffix, count = file.suffix.lower(), 1
    if suffix == PDF_SUFFIX:
        count = pdf_page_count(file)
    elif suffix in (".tif", ".tiff"):
        with contextlib.suppress(Unreadable):  # the error comes when the page is taken
            count = count_pages(file)
    if count == 1 and suffix != PDF_SUFFIX:
        return [_Image(file, name)]
    try:
        numbers = range(1, count + 1) if pages is None else parse_pages(pages, count)
    except DocumentError as error:
        raise DocumentError(f"{file}: {error}") from None
    return [_Image(file, name, number) for number in numbers]


def _named(files: Iterable[Path], roots: Sequence[Path]) -> dict[Path, str]:
    """Each file once, with its name: its path below the outermost given folder, else the file name. Files of
    equal names get their path below their common folder.
    """
    places: dict[Path, Path] = {}
    for file in files:
        places.setdefault(file.absolute(), file)
    names: dict[Path, Path] = {}
    for place in places:
        depths = (len(place.parts) - len(root.parts) for root in roots if place.is_relative_to(root))
        names[place] = Path(*place.parts[-max(depths, default=1) :])
    for whole in (False, True):  # where that is the name of another file, the whole path
        alike: dict[Path, list[Path]] = {}
        for place, name in names.items():
            alike.setdefault(name, []).append(place)
        for group in (group for group in alike.values() if len(group) > 1):
            root = "/" if whole else os.path.commonpath(group)
            names |= {place: place.relative_to(root) for place in group}
    return {file: name_text(names[place].as_posix()) for place, file in places.items()}


def _files(path: Path, recursive: bool) -> list[Path]:
    """The path itself, or the images and PDFs of a folder in natural order. Other files are logged."""
    if not path.is_dir():
        if not path.exists():
            _check_file(path)
        return [path]
    found: list[Path] = []
    others: list[str] = []
    for folder, folders, names in os.walk(path, onerror=_raise):
        files, below = (
            sorted((name for name in each if not name.startswith(".")), key=natural_key)
            for each in (names, folders)
        )
        for file in (Path(folder, name) for name in files):
            is_page = file.suffix.lower() in IMAGE_SUFFIXES | {PDF_SUFFIX} and file.is_file()
            found.append(file) if is_page else others.append(file.name)
        folders[:] = below if recursive else []
        others += [] if recursive else [f"{name}/" for name in below]
    if not found:
        hint = "--recursive, or " if others and others[-1].endswith("/") else ""
        raise DocumentError(f"{path}: no images or PDFs in this folder; give {hint}one that has some")
    if others:
        more = ", ..." if len(others) > _SHOWN else ""
        _say_once(f"{path.name or path}: {len(others)} not read: {', '.join(others[:_SHOWN])}{more}")
    return found


def _raise(error: OSError) -> None:
    raise error


def natural_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts `page2` before `page10`."""
    parts = re.split(r"(\d+)", name.casefold(), flags=re.ASCII)
    return tuple((0, int(part[:18])) if part.isdigit() and part.isascii() else (1, part) for part in parts)

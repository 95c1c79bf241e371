"""Sources of a page: the samples, an upload, a path under the allowed roots. No Streamlit."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import PROJECT_ROOT, RUNS_DIRECTORY
from dsocr_core.page import documents

SAMPLES = PROJECT_ROOT / "data" / "samples"
UPLOADS = RUNS_DIRECTORY / "uploads"
RENDERED = RUNS_DIRECTORY / "pages"
UPLOAD_TYPES = sorted(suffix.lstrip(".") for suffix in (*documents.IMAGE_SUFFIXES, documents.PDF_SUFFIX))
_MOST_UPLOADS = 200


@dataclass(frozen=True)
class PageSource:
    """One page to read. `key` names it in the page's address."""

    key: str
    name: str
    path: Path
    more: tuple[Path, ...] | None = None
    """Pages after it in one prompt; None for a page that is read by itself."""


@dataclass(frozen=True)
class PageList:
    """The pages to leaf through. A page of a PDF is rendered when it is taken."""

    keys: tuple[str, ...] = ()
    pages: Sequence[documents.Page] = ()
    name: str = ""
    """The file or folder, as it was typed or is stored."""
    in_one_prompt: bool = False

    def position(self, key: str) -> int:
        """Find where `key` is; the first page when it is not here."""
        return self.keys.index(key) if key in self.keys else 0

    def take(self, index: int) -> PageSource:
        """Open a page. Raises DsocrError."""
        page = self.pages[index]
        return PageSource(self.keys[index], page.source, page.path, page.more)

    def together(self) -> PageList:
        """Put all pages of a document into one prompt."""
        assert isinstance(self.pages, documents.Pages)
        return replace(_listed(self.pages.together(sys.maxsize)), name=self.name, in_one_prompt=True)

    def only(self, numbers: str) -> PageList:
        """Keep the pages of a list like 1-3,7, counted from 1. Raises DsocrError."""
        assert isinstance(self.pages, documents.Pages)
        chosen = documents.parse_pages(numbers, len(self.keys))
        return replace(_listed(self.pages.only({self.keys[number - 1] for number in chosen})), name=self.name)


def samples(folder: Path | None = None) -> PageList:
    """The pages that come with the project, by name."""
    files = sorted(
        path for path in (folder or SAMPLES).glob("*") if path.suffix.lower() in documents.IMAGE_SUFFIXES
    )
    return PageList(tuple(file.stem for file in files), [documents.Page(file, file.name) for file in files])


def _listed(pages: documents.Pages) -> PageList:
    return PageList(tuple(pages.name(index) for index in range(len(pages))), pages)


def store_upload(name: str, content: bytes, folder: Path | None = None) -> Path:
    """Store an upload under its content's hash, so that a result is found again. Raises DsocrError.

    The name is the browser's: only its last part and harmless characters stay.
    """
    safe = re.sub(r"[^\w.\- ]", "_", Path(name.replace("\\", "/")).name).strip(". ")[-80:] or "upload"
    if not content:
        raise DsocrError(f"{safe}: the file is empty; choose an image or a PDF")
    folder = folder or UPLOADS
    digest = hashlib.sha256(content).hexdigest()[:16]
    target = folder / digest / safe
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            partial = target.with_name(target.name + ".part")
            partial.write_bytes(content)
            partial.replace(target)
        _forget_oldest(folder)
    except OSError as error:
        raise DsocrError(f"{safe}: the upload could not be stored ({error.strerror})") from error
    return target


def is_stored(path: Path) -> bool:
    """Tell whether a file was uploaded or rendered here: its reader knows its name alone."""
    return path.is_relative_to(UPLOADS) or path.is_relative_to(RENDERED)


@contextmanager
def own_names(path: Path | None = None, name: str = "") -> Iterator[None]:
    """Say what goes wrong with a stored file by the name that its reader knows: `name` at that path."""
    try:
        yield
    except DsocrError as error:
        text = str(error)
        if path is not None and is_stored(path):
            text = text.replace(str(path), name)
        raise DsocrError(re.sub(rf"({UPLOADS}/[0-9a-f]{{16}}|{RENDERED})/", "", text)) from error


def _forget_oldest(folder: Path) -> None:
    """Keep the latest uploads: they are copies."""
    uploads = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in uploads[_MOST_UPLOADS:]:
        for file in stale.iterdir():
            file.unlink(missing_ok=True)
        stale.rmdir()


def typed_pages(text: str, roots: tuple[Path, ...]) -> PageList:
    """Pages of a typed file or folder, without links in it that lead out of the roots.

    Uploads and rendered pages may be named, too.
    """
    path = typed_path(text, roots, (UPLOADS, RENDERED))
    files = [path]
    if path.is_dir():
        readable = (*documents.IMAGE_SUFFIXES, documents.PDF_SUFFIX)
        try:
            files = [file for file in path.iterdir() if file.suffix.lower() in readable and file.is_file()]
        except OSError as error:
            raise DsocrError(f"{path}: cannot be read ({error.strerror})") from error
        files = [file for file in files if _inside(file.resolve(), roots)]
        if not files:
            raise DsocrError(f"{path}: no images or PDFs in this folder; give one that has some")
        files.sort(key=lambda file: documents.natural_key(file.name))
    return replace(_listed(documents.expand(files, work_directory=RENDERED)), name=text)


def _inside(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root.resolve()) for root in roots)


def typed_path(text: str, roots: tuple[Path, ...], own: tuple[Path, ...] = ()) -> Path:
    """The file or folder a user typed, links resolved. Raises DsocrError outside the roots and `own`."""
    try:
        entered = Path(text.strip()).expanduser()
        path = entered.resolve(strict=False)
        there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such user, a zero byte
        cause = getattr(error, "strerror", None) or one_line(error, 80)
        raise DsocrError(f"{text.strip()[:120]}: not a usable path ({cause})") from error
    if not _inside(path, (*roots, *own)):
        allowed = ", ".join(str(root) for root in roots)
        raise DsocrError(f"{entered}: outside the folders this page may read; allowed: {allowed}")
    if not there:
        raise DsocrError(f"{entered}: no such file or folder")
    return path

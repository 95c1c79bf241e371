"""Pages to read: listed as a stream and cut into shards.

Folders and prefixes are listed with all that is below them, in the order of names. A manifest (.txt, .list)
is read in its own order: one path or URL a line. The same inputs make the same shards, on any number of
workers, and when a run goes on.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, NoReturn

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.cluster.job import Job
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX
from dsocr_core.reading.records import OcrResult

MANIFEST_SUFFIXES = (".txt", ".list")
MOST_OF_A_LINE = 4096
"""Most bytes of a line of a manifest."""
_COUNTERS, _COUNTED_TOGETHER = 4, 64
Status = Literal["read", "failed", "quarantined"]
Count = Callable[[str], int | None]
"""Function that counts the pages of a PDF; None for one that cannot be counted."""


@dataclass(frozen=True)
class PageReading:
    """Outcome of a page: a result, or why there is none."""

    number: int  # in the run
    name: str
    path: str  # path of its file, or a URL
    result: OcrResult | None = None
    error: str | None = None
    quarantined: bool = False

    @property
    def status(self) -> Status:
        return "read" if self.result is not None else "quarantined" if self.quarantined else "failed"


class PageRef(NamedTuple):
    """A page to read: its number in the run, its file as every worker opens it, its page of a PDF."""

    number: int
    path: str
    page: int | None = None
    """Page of a PDF, from 1. None for an image, and for a PDF that could not be counted."""

    @property
    def source(self) -> str:
        """Name of the page: its file, with `#3` for a page of a PDF."""
        return self.path if self.page is None else f"{self.path}#{self.page}"

    def read(self, result: OcrResult) -> PageReading:
        """The page with its result, whose image is named by its file and not by a worker's copy."""
        request = replace(result.request, image=Path(text_name(self.path)), source=self.source)
        return PageReading(self.number, self.source, self.path, replace(result, request=request))

    def failed(self, error: str, quarantined: bool = False) -> PageReading:
        return PageReading(self.number, self.source, self.path, error=error, quarantined=quarantined)


@dataclass(frozen=True)
class Shard:
    """Neighbouring pages of a run, committed together."""

    index: int
    pages: tuple[PageRef, ...]
    key: str
    """Hash of the pages' names and of all that decides their results."""

    @classmethod
    def of(cls, index: int, pages: Iterable[PageRef], job: str) -> Shard:
        """Make the shard of that index. `job` is the digest of settings, checkpoint and code."""
        pages = tuple(pages)
        lines = "".join(json.dumps(list(page)) + "\n" for page in pages)
        return cls(index, pages, hashlib.sha256((job + lines).encode()).hexdigest()[:16])

    @property
    def name(self) -> str:
        """Name that sorts in the order of the shards, up to a billion of them."""
        return f"{self.index:09d}-{self.key}"


def cut(job: Job, files: Iterable[str], count: Count) -> Iterator[Shard]:
    """Every shard of the files, in order. Raises DsocrError."""
    pages = _pages(files, count)
    for index in itertools.count():
        if not (some := tuple(itertools.islice(pages, job.shard_pages))):
            return
        yield Shard.of(index, some, job.digest)


def _pages(files: Iterable[str], count: Count) -> Iterator[PageRef]:
    """Every page of the files. Several PDFs are counted at the same time."""

    def counted(path: str) -> int | None:
        return count(path) if _suffix(path) == PDF_SUFFIX else None

    rest, numbers = iter(files), itertools.count()
    with ThreadPoolExecutor(_COUNTERS) as counters:
        while some := list(itertools.islice(rest, _COUNTED_TOGETHER)):
            for path, pages in zip(some, counters.map(counted, some), strict=True):
                for page in [None] if pages is None else range(1, pages + 1):
                    yield PageRef(next(numbers), path, page)


# --- listing --------------------------------------------------------------------------------------


def list_files(inputs: Iterable[str]) -> Iterator[str]:
    """Every file of the inputs, in a stable order. Raises DsocrError."""
    for given in inputs:
        path = None
        try:
            for path in _files(given):
                yield path
        except DsocrError:
            raise
        except Exception as error:
            raise DsocrError(f"{given}: cannot be read ({one_line(error, 200)})") from error
        if path is None:
            raise DsocrError(f"{given}: no images or PDFs in it; give one that has some")


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _is_page(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith(".") and (_suffix(name) in IMAGE_SUFFIXES or _suffix(name) == PDF_SUFFIX)


def _files(given: str) -> Iterator[str]:
    """Raises DsocrError, and whatever a file system does."""
    if _suffix(given) in MANIFEST_SUFFIXES:
        yield from _of_manifest(given)
    elif "://" in given:
        yield from _of_url(given)
    elif (path := Path(given)).is_dir():
        yield from map(name_text, _walked(os.walk(path.absolute(), onerror=_raise)))
    elif path.is_file():
        yield name_text(str(path.absolute()))
    else:
        raise DsocrError(f"{given}: no such file; check the path")


def _raise(error: OSError) -> NoReturn:
    raise error


def _walked(folders: Iterable[tuple[str, list[str], list[str]]]) -> Iterator[str]:
    """Files of the folders in the order of their names, then those of the folders below, folder by folder."""
    for folder, below, files in folders:
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(filter(_is_page, files)):
            yield f"{folder}/{name}"


def _of_url(url: str) -> Iterator[str]:
    import fsspec

    fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    if _is_page(path) or url.startswith(("http://", "https://")):
        yield url
        return
    protocol = url.partition("://")[0]
    for found in _walked(fs.walk(path)):
        yield f"{protocol}://{found.lstrip('/')}" if protocol != "file" else found


def _of_manifest(given: str) -> Iterator[str]:
    """Files that a manifest lists. Relative paths start at the manifest's own folder."""
    import fsspec

    base = "" if "://" in given else f"{Path(given).absolute().parent}/"
    with fsspec.open(given, "rb") as handle:
        lines = iter(lambda: handle.readline(MOST_OF_A_LINE + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > MOST_OF_A_LINE:
                raise DsocrError(f"{given}: line {number} is longer than {MOST_OF_A_LINE} bytes")
            text = name_text(line.decode(errors="surrogateescape").strip())
            if text and not text.startswith("#"):
                yield text if "://" in text or text.startswith("/") else f"{base}{text}"

"""Pages to read: listed as a stream, cut into shards, planned in the output before they are read.

Folders and prefixes are listed with all that is below them, in the order of names. A manifest is read in its
own order: one path or URL a line (.txt, .list), or a Parquet file with a column `path` or `url`. The same
inputs make the same shards, on any number of workers. A run that goes on lists its inputs again and compares
them with the plan: other inputs would be other shards.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.cluster.job import Job, OtherJob
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.sharded import COMPLETE, PageReading

if TYPE_CHECKING:
    from dsocr_core.cluster.output import Output

MANIFEST_SUFFIXES = (".txt", ".list", ".parquet")
MOST_OF_A_LINE = 4096
"""Characters of a line of a manifest."""
SHARDS_A_PART = 16
"""Shards of a file of the plan."""
_COLUMNS, _ROWS = ("path", "url"), 10_000
_COUNTERS, _COUNTED_TOGETHER = 4, 64


class ListingError(DsocrError):
    """An input that cannot be listed: names it and the cause."""


class PageRef(NamedTuple):
    """A page that is to be read: its number in the run, its file, and which page of a PDF it is."""

    number: int
    path: str
    """A path or a URL that every worker can open."""
    page: int | None = None
    """Page of a PDF, from 1; None for an image, and for a PDF that could not be counted."""

    @property
    def source(self) -> str:
        """Name the page."""
        return self.path if self.page is None else f"{self.path}#{self.page}"

    def read(self, result: OcrResult) -> PageReading:
        """The page with what was read of it, whatever copy of it the reader had."""
        request = replace(result.request, image=Path(text_name(self.path)), source=self.source)
        return PageReading(self.number, self.source, self.path, replace(result, request=request))

    def failed(self, error: str, quarantined: bool = False) -> PageReading:
        return PageReading(self.number, self.source, self.path, error=error, quarantined=quarantined)


@dataclass(frozen=True)
class Shard:
    """Neighbouring pages of a run, committed together.

    `key` is a hash of the pages' names and of all that decides their results.
    """

    index: int
    pages: tuple[PageRef, ...]
    key: str

    @classmethod
    def of(cls, index: int, pages: Iterable[PageRef], job: str) -> Shard:
        """`job` stands for settings, checkpoint and code."""
        pages = tuple(pages)
        lines = "".join(json.dumps(list(page)) + "\n" for page in pages)
        return cls(index, pages, hashlib.sha256((job + lines).encode()).hexdigest()[:16])

    @property
    def name(self) -> str:
        """Sorts in the order of the shards, up to a billion of them."""
        return f"{self.index:09d}-{self.key}"


# --- the plan -------------------------------------------------------------------------------------


def planned_shards(
    output: Output, job: Job, files: Iterable[str], count: Callable[[str], int | None]
) -> Iterator[Shard]:
    """Every shard of the run in order, each in the stored plan by then.

    `count` gives the pages of a PDF, None for one that cannot be counted; PDFs of the stored plan are not
    counted again. Raises OtherJob when the inputs are others than they were, ListingError.
    """
    stored, complete = output.plan_parts(), output.document(COMPLETE) is not None
    size, numbers = job.shard_pages, itertools.count()
    found = (
        PageRef(next(numbers), path, page)
        for path, pages in _counted(files, _counts(output, complete), count)
        for page in ([None] if pages is None else range(1, pages + 1))
    )
    pages = shards = 0
    for part in itertools.count():
        some = list(itertools.islice(found, SHARDS_A_PART * size))
        cuts = enumerate(range(0, len(some), size), start=shards)
        made = [Shard.of(index, some[at : at + size], job.digest) for index, at in cuts]
        if part < len(stored) or complete:
            before = list(output.plan_part(stored[part])) if part < len(stored) else []
            _compare(output, before, [(shard.index, page) for shard in made for page in shard.pages])
        elif made:
            output.write_plan(part, made)
        if not made:
            break
        pages, shards = pages + len(some), shards + len(made)
        yield from made
    if not complete:
        output.complete_plan(pages, shards)


def _counts(output: Output, complete: bool) -> dict[str, int]:
    """Pages of the PDFs of the stored plan. The last file of a plan that is not complete may lack some."""
    counts: dict[str, int] = {}
    last = ""
    for _, page in itertools.chain.from_iterable(map(output.plan_part, output.plan_parts())):
        if page.page is not None:
            counts[page.path] = max(page.page, counts.get(page.path, 0))
        last = page.path
    if not complete:
        counts.pop(last, None)
    return counts


def _counted(
    files: Iterable[str], known: dict[str, int], count: Callable[[str], int | None]
) -> Iterator[tuple[str, int | None]]:
    """Each file with its pages, several PDFs counted at a time; None for an image."""

    def pages_of(path: str) -> int | None:
        return count(path) if _suffix(path) == PDF_SUFFIX and path not in known else known.get(path)

    rest = iter(files)
    with ThreadPoolExecutor(_COUNTERS) as counters:
        while some := list(itertools.islice(rest, _COUNTED_TOGETHER)):
            yield from zip(some, counters.map(pages_of, some), strict=True)


def _compare(output: Output, before: list[tuple[int, PageRef]], now: list[tuple[int, PageRef]]) -> None:
    """Raises OtherJob, which names the first page that is another."""
    for was, found in itertools.zip_longest(before, now):
        if was != found:
            number = (was or found)[1].number + 1
            names = [each[1].source if each else "nothing" for each in (was, found)]
            raise OtherJob(
                f"{output.store.location}: its inputs have changed: page {number:,} was {names[0]}, now "
                f"it is {names[1]}; give another --out"
            )


# --- listing --------------------------------------------------------------------------------------


def list_files(inputs: Iterable[str]) -> Iterator[str]:
    """Every file of the inputs, in a stable order. Raises ListingError."""
    for given in inputs:
        path = None
        try:
            for path in _files(given):
                yield path
        except DsocrError:
            raise
        except Exception as error:
            raise ListingError(f"{given}: cannot be read ({one_line(error, 200)})") from error
        if path is None:
            raise ListingError(f"{given}: no images or PDFs in it; give one that has some")


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _is_page(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith(".") and (_suffix(name) in IMAGE_SUFFIXES or _suffix(name) == PDF_SUFFIX)


def _files(given: str) -> Iterator[str]:
    """Raises ListingError, and whatever a file system or a reader of files does."""
    if _suffix(given) in MANIFEST_SUFFIXES:
        yield from _of_manifest(given)
    elif "://" in given:
        yield from _of_url(given)
    elif (path := Path(given)).is_dir():
        yield from map(name_text, _walked(os.walk(path.absolute(), onerror=_raise)))
    elif path.is_file():
        yield name_text(str(path.absolute()))
    else:
        raise ListingError(f"{given}: no such file; check the path")


def _raise(error: OSError) -> None:
    raise error


def _walked(folders: Iterable[tuple[str, list[str], list[str]]]) -> Iterator[str]:
    """Files of a folder in the order of their names, then those of the folders in it, folder by folder."""
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
    """Relative paths are those of the manifest's own folder."""
    import fsspec

    base = "" if "://" in given else f"{Path(given).absolute().parent}/"
    with fsspec.open(given, "rb") as handle:
        rows = _parquet_rows if _suffix(given) == ".parquet" else _lines
        for line in rows(handle, given):
            yield line if "://" in line or line.startswith("/") else f"{base}{line}"


def _lines(handle: Any, given: str) -> Iterator[str]:
    lines = iter(lambda: handle.readline(MOST_OF_A_LINE + 1), b"")
    for number, line in enumerate(lines, start=1):
        if len(line) > MOST_OF_A_LINE:
            raise ListingError(f"{given}: line {number} is longer than {MOST_OF_A_LINE} bytes")
        text = name_text(line.decode(errors="surrogateescape").strip())
        if text and not text.startswith("#"):
            yield text


def _parquet_rows(handle: Any, given: str) -> Iterator[str]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(handle)
    column = next((name for name in _COLUMNS if name in file.schema_arrow.names), None)
    if column is None:
        raise ListingError(f"{given}: has no column {' or '.join(_COLUMNS)}")
    for batch in file.iter_batches(_ROWS, columns=[column]):
        for value in batch.column(0).to_pylist():
            if not isinstance(value, str) or not value or len(value) > MOST_OF_A_LINE:
                raise ListingError(f"{given}: column {column} has a row that is no path or URL")
            yield value

"""Pages to read, as a stream of paths and URLs: memory holds the names of one folder.

Folders and prefixes are listed with all that is below them, in an order that the file system does not
decide. A manifest is read in its own order: one path or URL a line (.txt, .list), or a Parquet file with a
column `path` or `url`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import name_text
from dsocr_core.page.documents import IMAGE_SUFFIXES, PDF_SUFFIX

MANIFEST_SUFFIXES = (".txt", ".list", ".parquet")
MOST_OF_A_LINE = 4096
"""Characters of a line of a manifest."""

_COLUMNS = ("path", "url")
_ROWS = 10_000


class ListingError(DsocrError):
    """An input that cannot be listed: names it and the cause."""


def list_files(inputs: Iterable[str]) -> Iterator[str]:
    """Every file of the inputs, in a stable order. Raises ListingError."""
    for given in inputs:
        found = False
        for path in _files(given):
            found = True
            yield path
        if not found:
            raise ListingError(f"{given}: no images or PDFs in it; give one that has some")


def is_pdf(path: str) -> bool:
    return _suffix(path) == PDF_SUFFIX


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _is_page(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith(".") and (_suffix(name) in IMAGE_SUFFIXES or _suffix(name) == PDF_SUFFIX)


def _files(given: str) -> Iterator[str]:
    if _suffix(given) in MANIFEST_SUFFIXES:
        return _of_manifest(given)
    if "://" in given:
        return _of_url(given)
    path = Path(given)
    try:
        if path.is_dir():
            return _of_folder(path.absolute())
        if path.is_file():
            return iter([name_text(str(path.absolute()))])
    except (OSError, ValueError) as error:
        raise ListingError(f"{given}: cannot be read ({one_line(error)})") from error
    raise ListingError(f"{given}: no such file; check the path")


# --- folders --------------------------------------------------------------------------------------


def _of_folder(folder: Path) -> Iterator[str]:
    """Files of a folder in the order of their names, then those of the folders in it, folder by folder."""
    for name in sorted(_names(folder, folders=False)):
        yield name_text(str(folder / name))
    for name in sorted(_names(folder, folders=True)):
        yield from _of_folder(folder / name)


def _names(folder: Path, folders: bool) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # A link to a folder may lead round in circles.
                is_folder = entry.is_dir(follow_symlinks=False)
                wanted = not entry.name.startswith(".") if is_folder else _is_page(entry.name)
                if is_folder == folders and wanted:
                    yield entry.name
    except OSError as error:
        raise ListingError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error


# --- object stores --------------------------------------------------------------------------------


def _of_url(url: str) -> Iterator[str]:
    try:
        import fsspec

        fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        if _is_page(path) or url.startswith(("http://", "https://")):
            yield url
            return
        protocol = url.partition("://")[0]
        listed = _s3_objects(fs, path) if protocol in ("s3", "s3a") else _walked(fs, path)
        for found in listed:
            if _is_page(found):
                yield f"{protocol}://{found.lstrip('/')}" if protocol != "file" else found
    except DsocrError:
        raise
    except Exception as error:
        raise ListingError(f"{url}: cannot be listed ({one_line(error, 200)})") from error


def _s3_objects(fs: Any, path: str) -> Iterator[str]:
    """A thousand objects a request, in the order of their names: what the store keeps them in."""
    bucket, _, prefix = path.partition("/")
    more: dict[str, str] = {}
    prefix = f"{prefix.rstrip('/')}/" if prefix else ""
    while True:
        answer = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
        for entry in answer.get("Contents", ()):
            yield f"{bucket}/{entry['Key']}"
        if not answer.get("IsTruncated"):
            return
        more = {"ContinuationToken": answer["NextContinuationToken"]}


def _walked(fs: Any, path: str) -> Iterator[str]:
    """Folder by folder; of one folder all names are held."""
    for folder, folders, files in fs.walk(path):
        folders.sort()
        for name in sorted(files):
            yield f"{folder}/{name}"


# --- manifests ------------------------------------------------------------------------------------


def _of_manifest(given: str) -> Iterator[str]:
    """Relative paths are those of the manifest's own folder."""
    base = "" if "://" in given else f"{Path(given).absolute().parent}/"
    lines = _parquet_rows(given) if _suffix(given) == ".parquet" else _lines(given)
    try:
        for line in lines:
            yield line if "://" in line or line.startswith("/") else f"{base}{line}"
    except DsocrError:
        raise
    except Exception as error:
        raise ListingError(f"{given}: cannot be read ({one_line(error, 200)})") from error


def _opened(given: str) -> Any:
    import fsspec

    return fsspec.open(given, "rb")


def _lines(given: str) -> Iterator[str]:
    with _opened(given) as handle:
        number = 0
        while line := handle.readline(MOST_OF_A_LINE + 1):
            number += 1
            if len(line) > MOST_OF_A_LINE:
                raise ListingError(f"{given}: line {number} is longer than {MOST_OF_A_LINE} bytes")
            text = name_text(line.decode(errors="surrogateescape").strip())
            if text and not text.startswith("#"):
                yield text


def _parquet_rows(given: str) -> Iterator[str]:
    import pyarrow.parquet as pq

    with _opened(given) as handle:
        file = pq.ParquetFile(handle)
        column = next((name for name in _COLUMNS if name in file.schema_arrow.names), None)
        if column is None:
            raise ListingError(f"{given}: has no column {' or '.join(_COLUMNS)}")
        for batch in file.iter_batches(_ROWS, columns=[column]):
            for value in batch.column(0).to_pylist():
                if not isinstance(value, str) or not value or len(value) > MOST_OF_A_LINE:
                    raise ListingError(f"{given}: column {column} has a row that is no path or URL")
                yield value

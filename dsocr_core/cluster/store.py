"""Where an output lies: a directory, or any fsspec URL. A file appears whole or not at all.

put       a file under its name, whole; replaces what was there
put_new   the same, unless there is one already: of several writers one wins
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from dsocr_core.errors import DsocrError, one_line

_PART = ".part-"
"""Of a file that is being written in a directory; readers do not see it."""


class StoreError(DsocrError):
    """The output's store cannot be read or written; names it and the cause."""


class TooLarge(DsocrError):
    """A file that no run of this program writes so large; names it."""


MOST_BYTES, SMALL_BYTES = 2**31, 2**20
"""Of the results of a shard, and of its marker."""


class Store(Protocol):
    """Files by relative names with `/`. Every method raises StoreError."""

    location: str

    def put(self, name: str, content: bytes) -> None: ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Whether this call made the file; False where it was there."""

    def read(self, name: str) -> bytes | None:
        """None where there is none. Raises TooLarge beyond MOST_BYTES."""

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Those that are there, at the same time where the store can. Raises TooLarge beyond SMALL_BYTES."""

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted, without those being written; none without the folder."""

    def remove(self, name: str) -> None:
        """No error where it is gone."""


def open_store(location: str) -> Store:
    """The store of a path or a URL. Raises StoreError for a URL that fsspec cannot open."""
    return RemoteStore(location) if "://" in location else DirectoryStore(Path(location))


class DirectoryStore:
    """A directory that all workers see: of this machine, or a file system that they share."""

    def __init__(self, root: Path) -> None:
        self.root, self.location = root.absolute(), str(root)

    def put(self, name: str, content: bytes) -> None:
        with self._written(name, content) as part:
            part.replace(self.root / name)

    def put_new(self, name: str, content: bytes) -> bool:
        with self._written(name, content) as part:
            try:
                os.link(part, self.root / name)  # fails where the name is taken, for one of two writers
            except FileExistsError:
                return False
        return True

    @contextlib.contextmanager
    def _written(self, name: str, content: bytes) -> Iterator[Path]:
        """The content under a temporary name beside its own."""
        file = self.root / name
        part = file.parent / f"{_PART}{secrets.token_hex(8)}"
        with self._errors(name):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("xb") as handle:
                    handle.write(content)
                    handle.flush()
                    os.fsync(handle.fileno())
                yield part
            finally:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        return self._read(name, MOST_BYTES)

    def _read(self, name: str, most: int) -> bytes | None:
        with self._errors(name):
            try:
                with (self.root / name).open("rb") as handle:
                    if os.fstat(handle.fileno()).st_size > most:
                        raise TooLarge(f"{self.location}/{name}: more than {most:,} bytes")
                    return handle.read(most)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            content = self._read(name, SMALL_BYTES)
            if content is not None:
                yield name, content

    def names(self, folder: str) -> list[str]:
        with self._errors(folder):
            try:
                with os.scandir(self.root / folder) as entries:
                    return sorted(entry.name for entry in entries if not entry.name.startswith("."))
            except FileNotFoundError:
                return []

    def remove(self, name: str) -> None:
        with self._errors(name):
            (self.root / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            cause = getattr(error, "strerror", None) or one_line(error)
            raise StoreError(f"{self.location}/{name}: {cause}") from error


_TOGETHER = 64
"""Files that are fetched from an object store at a time."""


class RemoteStore:
    """An object store. An upload that is cut off leaves no object."""

    def __init__(self, location: str) -> None:
        import fsspec

        self.location = location.rstrip("/")
        try:
            self._fs, self._base = fsspec.core.url_to_fs(self.location, use_listings_cache=False)
        except (ValueError, ImportError, OSError) as error:
            raise StoreError(
                f"{location}: {one_line(error)}; give a path, or a URL that fsspec opens, with its package"
            ) from error
        protocol = self._fs.protocol
        self._has_create = "s3" in ((protocol,) if isinstance(protocol, str) else protocol)

    def put(self, name: str, content: bytes) -> None:
        with self._errors(name):
            self._fs.pipe_file(self._path(name), content)

    def put_new(self, name: str, content: bytes) -> bool:
        with self._errors(name):
            if self._fs.exists(self._path(name)):
                return False
            if not self._has_create:
                self._fs.pipe_file(self._path(name), content)
                return True
            try:
                self._fs.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if "PreconditionFailed" in repr(error) or "pre-conditions" in str(error):
                    return False
                raise
        return True

    def read(self, name: str) -> bytes | None:
        with self._errors(name):
            try:
                content: bytes = self._fs.cat_file(self._path(name))
                if len(content) > MOST_BYTES:
                    raise TooLarge(f"{self.location}/{name}: more than {MOST_BYTES:,} bytes")
            except FileNotFoundError:
                return None
            return content

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        wanted = list(names)
        for start in range(0, len(wanted), _TOGETHER):
            some = {self._path(name): name for name in wanted[start : start + _TOGETHER]}
            with self._errors(next(iter(some.values()))):
                found: dict[str, Any] = self._fs.cat(list(some), on_error="return")
                for path, content in found.items():
                    if isinstance(content, FileNotFoundError):
                        continue
                    if isinstance(content, Exception):
                        raise content
                    if len(content) > SMALL_BYTES:
                        raise TooLarge(f"{self.location}/{some[path]}: more than {SMALL_BYTES:,} bytes")
                    yield some[path], content

    def names(self, folder: str) -> list[str]:
        with self._errors(folder):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
            return sorted(name for path in found if (name := str(path).rstrip("/").rpartition("/")[2]))

    def remove(self, name: str) -> None:
        with self._errors(name), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except DsocrError:
            raise
        except Exception as error:
            raise StoreError(f"{self.location}/{name}: {one_line(error, 200)}") from error

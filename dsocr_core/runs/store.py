"""Files by name in a directory or at any fsspec URL; each is there whole or not at all.

put       a file under its name; replaces what was there
put_new   the same, unless there is one already: of several writers one wins
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.runs.storage import EntryGone, StorageError, sync_directory

MOST_BYTES, SMALL_BYTES = 2**31, 2**20
"""Limits of any file, and of one that `read_many` reads."""
_TOGETHER = 64
"""Files that are fetched from an object store at a time."""
_PART = ".part-"
"""Name of a file that is being written in a directory; readers do not see it."""


class Store:
    """Files by relative names with `/`. Every method raises StorageError where the store is at fault."""

    def __init__(self, location: str | Path) -> None:
        """Raises StorageError for a URL that fsspec cannot open."""
        text = str(location).removeprefix("file://")
        self.location = text.rstrip("/") if "://" in text else text
        self.root = None if "://" in text else Path(text).absolute()
        """The directory, None for a URL."""
        if self.root is None:
            import fsspec  # as much time as everything else here

            try:
                self.fs, self._base = fsspec.core.url_to_fs(self.location, use_listings_cache=False)
            except (ValueError, ImportError, OSError) as error:
                raise StorageError(
                    f"{location}: {one_line(error)}; give a path, or a URL that fsspec opens, with its "
                    "package installed"
                ) from error

    def put(self, name: str, content: bytes) -> None:
        self._write(name, content, new=False)

    def put_new(self, name: str, content: bytes) -> bool:
        """Write a file that is not there yet; tell whether this call made it."""
        return self._write(name, content, new=True)

    def _write(self, name: str, content: bytes, new: bool) -> bool:
        with self._errors(name):
            if self.root is not None:
                return _write_whole(self.root / name, content, new)
            if new and self.fs.exists(self._path(name)):
                return False
            # An object store refuses it where another writer has come first.
            mode = {"mode": "create"} if new and "s3" in self.fs.protocol else {}
            try:
                self.fs.pipe_file(self._path(name), content, **mode)
            except FileExistsError:
                return False
            except OSError as error:
                if mode and ("PreconditionFailed" in repr(error) or "pre-conditions" in str(error)):
                    return False
                raise
        return True

    def clear_parts(self) -> None:
        """Remove what killed writers left of files that they were writing. Only while nobody writes."""
        for part in () if self.root is None else self.root.glob(f"**/{_PART}*"):
            with self._errors(part.name):
                part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """No error where it is gone."""
        with self._errors(name), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.root is None:
                self.fs.rm_file(self._path(name))
            else:
                (self.root / name).unlink()

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """The content, None where there is none. Raises InvalidFile for what is no file of so many bytes."""
        with self._errors(name):
            try:
                if self.root is not None:
                    return read_bytes(self.root / name, most)
                end = None if most == MOST_BYTES else most + 1
                content: bytes = self.fs.cat_file(self._path(name), end=end)
            except (FileNotFoundError, Missing):
                return None
            except InvalidFile as error:
                if isinstance(error.__cause__, OSError) and not Path(self.location, name).is_symlink():
                    raise error.__cause__ from None  # the disk is at fault, not the file
                raise
            if len(content) > most:
                raise InvalidFile(f"more than {most:,} bytes")
            return content

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Small files that exist, many at a time where the store can. Raises InvalidFile with a name."""
        wanted = list(names)
        for start in range(0, len(wanted), _TOGETHER):
            some = wanted[start : start + _TOGETHER]
            for name, content in self._some(some):
                if content is not None:
                    yield name, content

    def _some(self, names: list[str]) -> Iterator[tuple[str, bytes | None]]:
        found: dict[str, Any] = {}
        if self.root is None:
            with self._errors(names[0]):
                found = self.fs.cat([self._path(name) for name in names], on_error="return")
        for name in names:
            try:
                if self.root is not None:
                    yield name, self.read(name, SMALL_BYTES)
                    continue
                content = found.get(self._path(name))
                if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                    with self._errors(name):
                        raise content
                if isinstance(content, bytes) and len(content) > SMALL_BYTES:
                    raise InvalidFile(f"more than {SMALL_BYTES:,} bytes")
                yield name, content if isinstance(content, bytes) else None
            except InvalidFile as error:
                raise InvalidFile(f"{self.location}/{name}: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted, without those that are being written; none without the folder."""
        with self._errors(folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.root is not None:
                with os.scandir(self.root / folder) as entries:
                    return sorted(entry.name for entry in entries if not entry.name.startswith("."))
            self.fs.invalidate_cache()
            found = self.fs.ls(self._path(folder), detail=False)
            return sorted(name for path in found if (name := str(path).rstrip("/").rpartition("/")[2]))
        # Asked of its kind alone: a folder may have been made since it was not there.
        if self.root is not None and ((place := self.root / folder).is_symlink() or place.is_file()):
            raise StorageError(f"{place}: not a folder")
        return []

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}"

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise EntryGone(f"{self.location}/{name}: not there any longer") from error
        except DsocrError:
            raise
        except Exception as error:
            if self.root is not None and not isinstance(error, (OSError, ValueError)):
                raise
            cause = getattr(error, "strerror", None) or one_line(error, 200)
            raise StorageError(f"{self.location}/{name}: {cause}") from error


def _write_whole(file: Path, content: bytes, new: bool) -> bool:
    """Write a file that is on the disk with its name at the end; False where a new one has come first."""
    part = file.parent / f"{_PART}{secrets.token_hex(8)}"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("xb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        if new:
            try:
                os.link(part, file)  # fails where the name is taken, for one of two writers
            except FileExistsError:
                return False
        else:
            part.replace(file)
        sync_directory(file.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return True

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

MOST_BYTES, SMALL_BYTES = 2**31, 2**20
"""Limits of any file, and of one that `read_many` reads."""
_TOGETHER = 64
"""Files that are fetched from an object store at a time."""
_PART = ".part-"
"""Name of a file that is being written in a directory; readers do not see it."""


class StorageError(DsocrError):
    """A storage cannot be read or written; names it and the cause."""


class NoRoom(StorageError):
    """The machine takes no temporary file: no fault of an entry."""


class EntryExists(StorageError):
    """An entry of this name is there already; entries never change."""


class EntryGone(StorageError):
    """An entry that was listed is there no longer."""


@contextlib.contextmanager
def writing(what: object, kind: type[StorageError] = StorageError) -> Iterator[None]:
    """Make one line, which names what was written, of what the system or pyarrow raises inside."""
    try:
        yield
    except OSError as error:
        # Of its own words pyarrow makes a paragraph.
        cause = os.strerror(error.errno) if error.errno else one_line(error)
        raise kind(f"{what}: could not be written ({cause})") from error


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

    def path(self, name: str) -> str:
        """Name a file as the file system of a URL does."""
        return f"{self._base}/{name}"

    # --- writing --------------------------------------------------------------------------------

    def put(self, name: str, content: bytes) -> None:
        if self.root is None:
            with self.errors(name):
                self.fs.pipe_file(self.path(name), content)
            return
        with self._written(self.root / name, name, content) as part:
            part.replace(self.root / name)

    def put_new(self, name: str, content: bytes) -> bool:
        """Write a file that is not there yet; tell whether this call made the file; False where it was
        there.
        """
        if self.root is None:
            return self._create(name, content)
        with self._written(self.root / name, name, content) as part:
            try:
                os.link(part, self.root / name)  # fails where the name is taken, for one of two writers
            except FileExistsError:
                return False
        return True

    def _create(self, name: str, content: bytes) -> bool:
        protocol = self.fs.protocol
        conditional = "s3" in ((protocol,) if isinstance(protocol, str) else protocol)
        with self.errors(name):
            if self.fs.exists(self.path(name)):
                return False
            try:
                self.fs.pipe_file(self.path(name), content, **({"mode": "create"} if conditional else {}))
            except FileExistsError:
                return False
            except OSError as error:
                if conditional and ("PreconditionFailed" in repr(error) or "pre-conditions" in str(error)):
                    return False
                raise
        return True

    @contextlib.contextmanager
    def _written(self, file: Path, name: str, content: bytes) -> Iterator[Path]:
        """The content under a temporary name beside its own; on the disk with its name at the end."""
        part = file.parent / f"{_PART}{secrets.token_hex(8)}"
        with self.errors(name):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("xb") as handle:
                    handle.write(content)
                    handle.flush()
                    os.fsync(handle.fileno())
                yield part
                sync_directory(file.parent)
            finally:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)

    def clear_parts(self) -> None:
        """Remove what killed writers left of files that they were writing. Only while nobody writes."""
        for part in () if self.root is None else self.root.glob(f"**/{_PART}*"):
            with self.errors(part.name):
                part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """No error where it is gone."""
        with self.errors(name), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.root is None:
                self.fs.rm_file(self.path(name))
            else:
                (self.root / name).unlink()

    # --- reading --------------------------------------------------------------------------------

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """The content, None where there is none. Raises InvalidFile for what is no file of so many bytes."""
        with self.errors(name):
            if self.root is not None:
                return self._of_directory(self.root / name, most)
            try:
                content: bytes = self.fs.cat_file(
                    self.path(name), end=None if most == MOST_BYTES else most + 1
                )
            except FileNotFoundError:
                return None
            if len(content) > most:
                raise InvalidFile(f"more than {most:,} bytes")
            return content

    @staticmethod
    def _of_directory(file: Path, most: int) -> bytes | None:
        try:
            return read_bytes(file, most)
        except Missing:
            return None
        except InvalidFile as error:
            if isinstance(error.__cause__, OSError) and not file.is_symlink():
                raise error.__cause__ from None  # the disk is at fault, not the file
            raise

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Small files that exist, many at a time where the store can. Raises InvalidFile with a name."""
        wanted = list(names)
        if self.root is not None:
            for name in wanted:
                try:
                    content = self.read(name, SMALL_BYTES)
                except InvalidFile as error:
                    raise InvalidFile(f"{self.location}/{name}: {error}") from error
                if content is not None:
                    yield name, content
            return
        for start in range(0, len(wanted), _TOGETHER):
            some = {self.path(name): name for name in wanted[start : start + _TOGETHER]}
            with self.errors(next(iter(some.values()))):
                found: dict[str, Any] = self.fs.cat(list(some), on_error="return")
                for path, content in found.items():
                    if isinstance(content, FileNotFoundError):
                        continue
                    if isinstance(content, Exception):
                        raise content
                    if len(content) > SMALL_BYTES:
                        raise InvalidFile(f"{self.location}/{some[path]}: more than {SMALL_BYTES:,} bytes")
                    yield some[path], content

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted, without those that are being written; none without the folder."""
        with self.errors(folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.root is not None:
                with os.scandir(self.root / folder) as entries:
                    return sorted(entry.name for entry in entries if not entry.name.startswith("."))
            self.fs.invalidate_cache()
            found = self.fs.ls(self.path(folder), detail=False)
            return sorted(name for path in found if (name := str(path).rstrip("/").rpartition("/")[2]))
        # Asked of its kind alone: a folder may have been made since it was not there.
        if self.root is not None and ((place := self.root / folder).is_symlink() or place.is_file()):
            raise StorageError(f"{place}: not a folder")
        return []

    @contextlib.contextmanager
    def errors(self, name: str) -> Iterator[None]:
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


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

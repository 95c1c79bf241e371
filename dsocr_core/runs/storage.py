"""Files of a history, and of a cluster's output: each is there whole or not at all, by rename.

    runs/<id>/             one run, immutable; there when it has its run.json
    annotations/<id>.json  rows of tags, notes, verdicts, trash; append-only
    unfinished/<id>/       what is being written, or what a crash left

Nothing of a history is ever changed in place, so readers need no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import encodable, name_text
from dsocr_core.reading.writing import StorageError, require_writable, write_whole, writing

DOCUMENT_LIMIT, SMALL_BYTES, MOST_BYTES = 2**22, 2**20, 2**31
"""Bytes of a run's document, of a file that `FileStore.read_many` reads, and of any file."""
UNLISTED = "its folder cannot be listed"
_ANNOTATION_LIMIT = 2**25
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_TOGETHER = 64  # files that are fetched from an object store at a time
_PART = ".part-"  # begins the name of a file that is being written; readers do not see it

Version = tuple[str, str]  # state of a run's folder and of its files


class EntryExists(StorageError):
    """An entry of this name is there already; entries never change."""


class EntryGone(StorageError):
    """An entry that was listed is gone."""


# --- writing ----------------------------------------------------------------------------------------


def synced(place: Path) -> None:
    """Put a file, or a directory's list of files, on the disk."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(directory: Path) -> None:
    """Put every file of a directory, and the directory, on the disk."""
    for place in (*directory.rglob("*"), directory):
        synced(place)


def put_file(file: Path, content: bytes, new: bool = False) -> bool:
    """Put a file down, whole or not at all, and on the disk; False where a `new` one is there already."""
    target = file.with_name(f"{_PART}{secrets.token_hex(8)}") if new else file
    write_whole(target, content, sync=True)
    if new:
        try:
            os.link(target, file)
        except FileExistsError:
            return False
        finally:
            target.unlink()
    synced(file.parent)
    return True


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Own a directory until the block or the process ends. Raises OSError where another one does."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(handle), directory.stat()):
            raise FileNotFoundError
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing_into(directory: Path) -> Iterator[None]:
    """Own a run directory, made if need be, removed if empty. Raises DsocrError, StorageError."""
    with contextlib.ExitStack() as lock:
        owned = False
        try:
            while not owned:
                directory.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):  # another writer cleared it away meanwhile
                    lock.enter_context(directory_lock(directory))
                    owned = True
            require_writable(directory)
        except BlockingIOError:
            raise DsocrError(
                f"{directory}: another process writes into it; wait for its end or give another --out"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            cause = getattr(error, "strerror", None) or str(error)
            raise StorageError(
                f"{directory}: could not be written ({cause}); give --out, or DSOCR_RUNS for all runs"
            ) from error
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                directory.rmdir()  # where nothing was written


# --- a history --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leftover:
    """Directory of a writer that did not finish."""

    path: str
    bytes: int


class RunStorage:
    """The runs and annotations in a directory of this machine, or of a file system that it has mounted."""

    def __init__(self, location: str | Path) -> None:
        """Raises StorageError for a URL, and for a name that is not UTF-8."""
        self.location = str(location).removeprefix("file://")
        if "://" in self.location:
            raise StorageError(f"{location}: the history is a directory; give a path, or mount the store")
        if encodable(self.location) != self.location:  # DuckDB takes no other
            raise StorageError(f"history: {name_text(self.location)} is not UTF-8; give another name")
        self.root = Path(self.location).absolute()

    def names(self) -> set[str]:
        """Runs that are there; one may lack its document while it is copied."""
        return {each.name for each in self._scan("runs")}

    def versions(self, before: Mapping[str, Version] = {}) -> dict[str, Version]:
        """Runs by name; what cannot be listed is UNLISTED, and what is as `before` is not looked into."""
        found: dict[str, Version] = {}
        for each in self._scan("runs"):
            try:
                state, known = str(_state(each)), before.get(each.name, ("", ""))
                found[each.name] = known if known[0] == state else (state, self.version(each.name))
            except OSError as error:
                if os.path.lexists(each.path):  # else it was removed just now
                    found[each.name] = "", f"{UNLISTED} ({error.strerror})"
        return found

    def version(self, name: str) -> str:
        """State of a run's files. Raises OSError."""
        with os.scandir(self.root / "runs" / name) as entries:
            files = sorted((each.name, *_state(each)) for each in entries if not each.is_dir())
        return hashlib.sha256(os.fsencode(repr(files))).hexdigest()[:32]

    def annotation_versions(self) -> dict[str, str]:
        """States of annotation files by name. Raises StorageError."""
        found = {}
        for each in self._scan("annotations"):
            with contextlib.suppress(FileNotFoundError):
                found[each.name] = str(_state(each))
        return found

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        place = self.root / folder
        try:
            with os.scandir(place) as found:
                return [each for each in found if is_entry_name(each.name)]
        except OSError as error:
            if isinstance(error, (FileNotFoundError, NotADirectoryError)) and not os.path.lexists(place):
                return []
            raise StorageError(f"{place}: {error.strerror}") from error

    def document(self, name: str) -> bytes | None:
        """A run's document, None while there is none. Raises InvalidFile when it is too large."""
        return _read(self._entry(name) / "run.json", DOCUMENT_LIMIT)

    def annotation(self, name: str) -> bytes | None:
        """An annotation file, None when it is gone. Raises InvalidFile when it is too large."""
        return _read(self.root / "annotations" / name, _ANNOTATION_LIMIT)

    def directory(self, name: str) -> Path:
        """A run's directory. Raises EntryGone."""
        entry = self._entry(name)
        if not entry.is_dir():
            raise EntryGone(f"{entry}: not there any longer")
        return entry

    def _entry(self, name: str) -> Path:
        if not is_entry_name(name):
            raise StorageError(f"'{name[:60]}' is no name of a run")
        return self.root / "runs" / name

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """A new directory to write a run in, locked until the process ends; left after an exception."""
        directory = self.root / "unfinished" / f"{name[:80]}.{secrets.token_hex(4)}"
        with writing_into(directory):
            yield directory

    def publish(self, written: Path, name: str, replace: bool = False) -> Path:
        """Make a directory from `scratch` a run, or `replace` one. Raises EntryExists, StorageError."""
        entry = self._entry(name)
        with writing(entry):
            entry.parent.mkdir(parents=True, exist_ok=True)
            sync_tree(written)
            if replace:
                self.remove(name)
            try:
                # A directory cannot be renamed onto one that holds files: of two writers, one wins.
                written.rename(entry)
            except OSError as error:
                if entry.is_dir():
                    raise EntryExists(f"{entry}: is there already") from error
                raise
            synced(entry.parent)
        return entry

    def remove(self, name: str) -> None:
        """Take a run away, visibly at once."""
        entry = self._entry(name)
        away = self.root / "unfinished" / f"{name[:80]}.removed-{secrets.token_hex(4)}"
        with writing(entry), contextlib.suppress(FileNotFoundError):
            away.parent.mkdir(parents=True, exist_ok=True)
            entry.rename(away)
            synced(entry.parent)
            if away.is_symlink() or not away.is_dir():
                away.unlink()
            else:
                shutil.rmtree(away, ignore_errors=True)

    def write_annotation(self, name: str, content: bytes) -> None:
        """Put a new annotation file down, whole or not at all."""
        file = self.root / "annotations" / name
        with writing(file):
            put_file(file, content)

    def leftovers(self) -> list[Leftover]:
        """Directories of writers that are gone: no process has locked them."""
        found = []
        for directory in sorted((self.root / "unfinished").glob("*")):
            with contextlib.suppress(OSError), directory_lock(directory):
                files = [path.lstat().st_size for path in directory.rglob("*") if path.is_file()]
                found.append(Leftover(str(directory), sum(files)))
        return found


def _read(file: Path, most: int) -> bytes | None:
    """The content, None without a file. Raises InvalidFile, or StorageError where the disk is at fault."""
    try:
        return read_bytes(file, most)
    except Missing:
        return None
    except InvalidFile as error:
        if isinstance(error.__cause__, OSError) and not file.is_symlink():
            raise StorageError(f"{file}: {error.__cause__.strerror}") from error
        raise


def is_entry_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _state(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    """State of an entry. Raises OSError."""
    try:
        status = entry.stat()
    except FileNotFoundError:  # a link that leads nowhere
        status = entry.stat(follow_symlinks=False)
    return status.st_size, status.st_mtime_ns, status.st_ino


# --- a cluster's output -----------------------------------------------------------------------------


class FileStore:
    """Files by relative names with `/`, in a directory or at a URL that fsspec opens.

    Every method raises StorageError where the store is at fault.
    """

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

    def put(self, name: str, content: bytes, new: bool = False) -> bool:
        """Write a file, a `new` one only where there is none; tell whether this call wrote it.

        Of several writers of a new one, one makes it; at a URL not at the same moment.
        """
        with self._errors(name):
            if self.root is not None:
                return put_file(self.root / name, content, new)
            if new and self.fs.exists(f"{self._base}/{name}"):
                return False
            self.fs.pipe_file(f"{self._base}/{name}", content)
        return True

    def clear_parts(self) -> None:
        """Remove what killed writers left of files that they were writing. Only while nobody writes."""
        with self._errors(_PART):
            for part in () if self.root is None else self.root.glob(f"**/{_PART}*"):
                part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """No error where it is gone."""
        with self._errors(name), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.root is None:
                self.fs.rm_file(f"{self._base}/{name}")
            else:
                (self.root / name).unlink()

    def read(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """The content, None where there is none. Raises InvalidFile for what is no file of so many bytes."""
        if self.root is not None:
            return _read(self.root / name, most)
        with self._errors(name), contextlib.suppress(FileNotFoundError):
            content: bytes = self.fs.cat_file(f"{self._base}/{name}", end=most + 1)
            if len(content) > most:
                raise InvalidFile(f"more than {most:,} bytes")
            return content
        return None

    def read_many(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Small files that exist, many at a time from a URL; of what is none no bytes."""

        def read(name: str) -> tuple[str, bytes | None]:
            try:
                return name, self.read(name, SMALL_BYTES)
            except InvalidFile:
                return name, b""

        with ThreadPoolExecutor(_TOGETHER) as threads:
            for name, content in (threads.map if self.root is None else map)(read, names):
                if content is not None:
                    yield name, content

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted, without those that are being written; none without the folder."""
        with self._errors(folder), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.root is not None:
                found = [each.name for each in (self.root / folder).iterdir()]
                return sorted(name for name in found if not name.startswith("."))
            self.fs.invalidate_cache()
            paths = self.fs.ls(f"{self._base}/{folder}", detail=False)
            return sorted(name for path in paths if (name := str(path).rstrip("/").rpartition("/")[2]))
        return []

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except DsocrError:
            raise
        except Exception as error:
            if self.root is not None and not isinstance(error, (OSError, ValueError)):
                raise
            cause = getattr(error, "strerror", None) or one_line(error, 200)
            raise StorageError(f"{self.location}/{name}: {cause}") from error

"""Place of a history: a directory of this machine, or of a file system that it has mounted.

    runs/<id>/             one run, immutable; there when it has its run.json
    annotations/<id>.json  rows of tags, notes, verdicts, trash; append-only
    unfinished/<id>/       what is being written, or what a crash left

Entries appear whole or not at all, by rename. Nothing here is ever changed in place, so readers need no lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.runs.storage.held import Leftover, held_directory, leftovers_in
from dsocr_core.runs.storage.store import EntryExists, EntryGone, StorageError, sync_directory, writing

DOCUMENT = "run.json"
"""The file that makes a run one; written last."""
DOCUMENT_LIMIT = 2**22
"""Bytes of a run's document."""
UNLISTED = "its folder cannot be listed"
ANNOTATION_LIMIT = 2**25
"""Bytes; what is larger is not read."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


Seen = tuple[str, str]
"""State of a run's folder, and of the files in it."""


def open_storage(location: str | Path) -> Storage:
    """A storage by path. Raises StorageError for a URL."""
    path = str(location).removeprefix("file://")
    if "://" in path:
        raise StorageError(f"{location}: the history is a directory; give a path, or mount the store")
    return Storage(Path(path))


class Storage:
    """The runs and annotations in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        """Folder in which this machine has entries, and what is being written."""
        self.location = str(root)

    def names(self) -> set[str]:
        """Runs that are there; one may lack its document while it is copied."""
        return {each.name for each in self._scan("runs")}

    def look(self, before: Mapping[str, Seen] = {}) -> dict[str, Seen]:
        """Runs, each with its folder's state and a text that is another when one of its tables is.

        What cannot be listed has UNLISTED with the cause. `before`: an earlier look, whose text stands where
        the folder is the same. Raises StorageError.
        """
        found: dict[str, Seen] = {}
        for each in self._scan("runs"):
            with contextlib.suppress(FileNotFoundError):  # removed just now
                state, last = _version_of(each), before.get(each.name)
                same = last is not None and last[0] == state
                found[each.name] = last if last and same else (state, self._version_or_cause(each.name))
        return found

    def _version_or_cause(self, name: str) -> str:
        try:
            return self.version(name)
        except OSError as error:
            if os.path.lexists(self.root / "runs" / name):
                return f"{UNLISTED} ({error.strerror})"
            raise

    def version(self, name: str) -> str:
        """Raises OSError."""
        with os.scandir(self.root / "runs" / name) as entries:
            files = sorted((each.name, _version_of(each)) for each in entries if not each.is_dir())
        return hashlib.sha256(os.fsencode(repr(files))).hexdigest()[:32]

    def annotation_versions(self) -> dict[str, str]:
        """Annotation files by name, each with a text that is another when it is. Raises StorageError."""
        found = {}
        for each in self._scan("annotations"):
            with contextlib.suppress(FileNotFoundError):
                found[each.name] = _version_of(each)
        return found

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        place = self.root / folder
        try:
            with os.scandir(place) as found:
                return [each for each in found if is_entry_name(each.name)]
        except (FileNotFoundError, NotADirectoryError):
            if os.path.lexists(place):
                raise StorageError(f"{place}: not a folder") from None
            return []
        except OSError as error:
            raise StorageError(f"{place}: {error.strerror}") from error

    def document(self, name: str) -> bytes | None:
        """A run's document, None while there is none. Raises InvalidFile when it is too large."""
        return _read(self._entry(name) / DOCUMENT, DOCUMENT_LIMIT)

    def exists(self, name: str) -> bool:
        """Tell whether anything has that name."""
        return os.path.lexists(self._entry(name))

    def directory(self, name: str) -> Path:
        """A local directory with a run's document and tables. Raises EntryGone."""
        entry = self._entry(name)
        if not entry.is_dir():
            raise EntryGone(f"{entry}: not there any longer")
        return entry

    def file(self, name: str, relative: str) -> Path:
        """A local copy of any file of a run. Raises EntryGone."""
        file = self._entry(name) / checked_relative(relative)
        try:
            there = file.is_file()
        except OSError as error:  # a name longer than the system takes
            raise EntryGone(f"{file}: cannot be read ({error.strerror})") from error
        if not there:
            raise EntryGone(f"{file}: not there")
        return file

    def files(self, name: str) -> list[str]:
        """All files of a run, by their path in it. Raises EntryGone."""
        below = self.directory(name)
        return sorted(
            Path(at, file).relative_to(below).as_posix() for at, _, files in os.walk(below) for file in files
        )

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """A new local directory to write a run in, locked while in use; left after an exception."""
        with held_directory(self.root / "unfinished", name) as directory:
            yield directory

    def publish(self, written: Path, name: str) -> Path:
        """Make a directory from `scratch` a run. Raises EntryExists or StorageError."""
        entry = self._entry(name)
        with writing(entry):
            entry.parent.mkdir(parents=True, exist_ok=True)
            sync_tree(written)
            try:
                # A directory cannot be renamed onto one that holds files: of two writers, one wins.
                written.rename(entry)
            except OSError as error:
                if entry.is_dir():
                    raise EntryExists(f"{entry}: is there already") from error
                raise
            sync_directory(entry.parent)
        return entry

    def remove(self, name: str) -> None:
        """Take a run away, visibly at once."""
        entry = self._entry(name)
        away = self.root / "unfinished" / f"{name[:80]}.removed-{secrets.token_hex(4)}"
        try:
            away.parent.mkdir(parents=True, exist_ok=True)
            entry.rename(away)
            sync_directory(entry.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"{entry}: could not be removed ({error.strerror})") from error
        if away.is_dir() and not away.is_symlink():
            shutil.rmtree(away, ignore_errors=True)
        else:
            away.unlink(missing_ok=True)

    def read_annotation(self, name: str) -> bytes:
        """Raises FileNotFoundError, InvalidFile when it is too large."""
        content = _read(self.root / "annotations" / name, ANNOTATION_LIMIT)
        if content is None:
            raise FileNotFoundError(name)
        return content

    def write_annotation(self, name: str, content: bytes) -> None:
        """Put a new annotation file down, whole or not at all; of a killed writer a leftover stays."""
        folder = self.root / "annotations"
        with held_directory(self.root / "unfinished", name) as temporary:
            try:
                with writing(folder / name):
                    folder.mkdir(parents=True, exist_ok=True)
                    (temporary / name).write_bytes(content)
                    sync_tree(temporary)
                    (temporary / name).rename(folder / name)
                    sync_directory(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def leftovers(self, clear: bool = False) -> list[Leftover]:
        """Directories of writers that are gone; with `clear` they are deleted."""
        return leftovers_in(self.root / "unfinished", clear=clear)

    def _entry(self, name: str) -> Path:
        if not is_entry_name(name):
            raise StorageError(f"'{name[:60]}' is no name of a run")
        return self.root / "runs" / name


def _read(file: Path, most: int) -> bytes | None:
    """Raises InvalidFile, or OSError where the disk is at fault."""
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


def checked_relative(relative: str) -> PurePosixPath:
    """A path below an entry. Raises StorageError for one that leads out of it."""
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in relative:
        raise StorageError(f"'{relative[:60]}' is not a file of a run")
    return path


def _version_of(entry: os.DirEntry[str]) -> str:
    """Raises OSError."""
    try:
        status = entry.stat()
    except OSError:  # a link that leads nowhere
        status = entry.stat(follow_symlinks=False)
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def sync_tree(directory: Path) -> None:
    """Put every file of a directory, and the directory, on the disk."""
    for folder, _, files in os.walk(directory, topdown=False):
        for file in files:
            with Path(folder, file).open("rb") as handle:
                os.fsync(handle.fileno())
        sync_directory(Path(folder))

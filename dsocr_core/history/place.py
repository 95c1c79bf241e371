"""Where a history lies: a local directory, or any fsspec URL seen through a local mirror.

    runs/<id>/             one run, immutable; there when it has its run.json
    packs/<id>/            many runs folded into larger files, immutable
    annotations/<id>.json  rows of tags, notes, verdicts, trash; append-only
    unfinished/<id>/       what is being written, or what a crash left

Entries appear whole or not at all: locally by rename; in an object store the document that makes an entry
visible is uploaded last. Nothing here is ever changed in place, so readers need no lock and a mirror of an
entry stays true.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from dsocr_core.errors import DsocrError

Kind = Literal["runs", "packs"]
DOCUMENTS: dict[Kind, str] = {"runs": "run.json", "packs": "pack.json"}
"""The file that makes an entry one; written last."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


class PlaceError(DsocrError):
    """The history cannot be read or written; names the place and the cause."""


class EntryExists(PlaceError):
    """An entry of this name is there already; entries never change."""


class EntryGone(PlaceError):
    """An entry that was listed is there no longer: it was folded into a pack, or deleted."""


@dataclass(frozen=True)
class Leftover:
    """What a writer that did not finish left behind."""

    path: str
    bytes: int
    age_s: float


class Place(Protocol):
    """Storage of a history. Names are those of entries, never paths."""

    location: str

    def names(self, kind: Kind) -> set[str]:
        """Entries that are there; an entry may lack its document while it is uploaded."""

    def document(self, kind: Kind, name: str) -> bytes | None:
        """The entry's document, None while there is none."""

    def directory(self, kind: Kind, name: str) -> Path:
        """A local directory with the entry's document and tables. Raises EntryGone."""

    def file(self, kind: Kind, name: str, relative: str) -> Path:
        """A local copy of any file of an entry. Raises EntryGone."""

    def files(self, kind: Kind, name: str) -> list[str]:
        """All files of an entry, by their place in it. Raises EntryGone."""

    def scratch(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A new local directory to write an entry in, held while in use; kept after an exception."""

    def publish(self, written: Path, kind: Kind, name: str) -> Path:
        """Make a directory from `scratch` an entry. Raises EntryExists or PlaceError."""

    def remove(self, kind: Kind, name: str) -> None:
        """Take an entry away, visibly at once."""

    def annotation_names(self) -> set[str]: ...

    def read_annotation(self, name: str) -> bytes: ...

    def write_annotation(self, name: str, content: bytes) -> None:
        """Put a new annotation file down, whole or not at all."""

    def remove_annotation(self, name: str) -> None: ...

    def leftovers(self) -> list[Leftover]:
        """Directories of writers that are gone."""

    def clear(self) -> list[Leftover]:
        """Delete the leftovers; returns them."""


def open_place(location: str | Path) -> Place:
    """A place by path or URL (`s3://bucket/history`). Raises PlaceError when its scheme is not known."""
    text = str(location)
    if "://" not in text:
        return LocalPlace(Path(text))
    if text.startswith("file://"):
        return LocalPlace(Path(text.removeprefix("file://")))
    from dsocr_core.history.remote import RemotePlace

    return RemotePlace(text)


def is_entry_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


class LocalPlace:
    """A directory of this machine (or a file system it has mounted)."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.location = str(root)

    def names(self, kind: Kind) -> set[str]:
        return _children(self.root / kind)

    def document(self, kind: Kind, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._entry(kind, name).joinpath(DOCUMENTS[kind]).read_bytes()
        return None

    def directory(self, kind: Kind, name: str) -> Path:
        entry = self._entry(kind, name)
        if not entry.is_dir():
            raise EntryGone(f"{entry}: not there any longer")
        return entry

    def file(self, kind: Kind, name: str, relative: str) -> Path:
        file = self._entry(kind, name) / checked_relative(relative)
        if not file.is_file():
            raise EntryGone(f"{file}: not there")
        return file

    def files(self, kind: Kind, name: str) -> list[str]:
        entry = self.directory(kind, name)
        return sorted(
            Path(folder, file).relative_to(entry).as_posix()
            for folder, _, files in os.walk(entry)
            for file in files
        )

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        with held_directory(self.root / "unfinished", name) as directory:
            yield directory

    def publish(self, written: Path, kind: Kind, name: str) -> Path:
        entry = self._entry(kind, name)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            sync_tree(written)
            # A directory cannot be renamed onto one that holds files: of two writers, one wins.
            written.rename(entry)
            sync_directory(entry.parent)
        except OSError as error:
            if entry.is_dir():
                raise EntryExists(f"{entry}: is there already") from error
            raise PlaceError(f"{entry}: could not be written ({error.strerror})") from error
        return entry

    def remove(self, kind: Kind, name: str) -> None:
        entry = self._entry(kind, name)
        away = self.root / "unfinished" / f"{name[:80]}.removed-{secrets.token_hex(4)}"
        try:
            away.parent.mkdir(parents=True, exist_ok=True)
            entry.rename(away)
            sync_directory(entry.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PlaceError(f"{entry}: could not be removed ({error.strerror})") from error
        shutil.rmtree(away, ignore_errors=True)

    def annotation_names(self) -> set[str]:
        return _children(self.root / "annotations")

    def read_annotation(self, name: str) -> bytes:
        return (self.root / "annotations" / name).read_bytes()

    def write_annotation(self, name: str, content: bytes) -> None:
        folder = self.root / "annotations"
        with held_directory(self.root / "unfinished", name) as temporary:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(content)
                sync_tree(temporary)
                (temporary / name).rename(folder / name)
                sync_directory(folder)
                temporary.rmdir()
            except OSError as error:
                shutil.rmtree(temporary, ignore_errors=True)
                raise PlaceError(f"{folder / name}: could not be written ({error.strerror})") from error

    def remove_annotation(self, name: str) -> None:
        (self.root / "annotations" / name).unlink(missing_ok=True)

    def leftovers(self) -> list[Leftover]:
        return leftovers_in(self.root / "unfinished")

    def clear(self) -> list[Leftover]:
        return clear_in(self.root / "unfinished")

    def _entry(self, kind: Kind, name: str) -> Path:
        if not is_entry_name(name):
            raise PlaceError(f"'{name[:60]}' is no name of a run")
        return self.root / kind / name


# --- directories in the making ------------------------------------------------------------------


@contextlib.contextmanager
def held_directory(parent: Path, name: str) -> Iterator[Path]:
    """A new directory with a lock on it that ends with the process, so a leftover is told from a work."""
    directory = parent / f"{name[:80]}.{secrets.token_hex(4)}"
    try:
        while True:
            directory.mkdir(parents=True)
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if directory.is_dir():  # else it was cleared away between its making and its locking
                break
            os.close(handle)
    except OSError as error:
        raise PlaceError(f"{directory}: could not be made ({error.strerror})") from error
    try:
        yield directory
    finally:
        os.close(handle)


def leftovers_in(parent: Path) -> list[Leftover]:
    """Directories under `parent` that nobody holds."""
    found = []
    for name in sorted(_children(parent)):
        with _unheld(parent / name) as free:
            if free:
                found.append(_leftover(parent / name))
    return found


def clear_in(parent: Path) -> list[Leftover]:
    """Delete the directories under `parent` that nobody holds."""
    cleared = []
    for name in sorted(_children(parent)):
        with _unheld(parent / name) as free:
            if free:
                cleared.append(_leftover(parent / name))
                shutil.rmtree(parent / name, ignore_errors=True)
    return cleared


@contextlib.contextmanager
def _unheld(directory: Path) -> Iterator[bool]:
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(handle)


def _leftover(directory: Path) -> Leftover:
    size, newest = 0, 0.0
    for folder, _, files in os.walk(directory):
        for path in [Path(folder), *(Path(folder, file) for file in files)]:
            with contextlib.suppress(OSError):
                status = path.lstat()
                size += status.st_size if path != Path(folder) else 0
                newest = max(newest, status.st_mtime)
    return Leftover(str(directory), size, max(time.time() - newest, 0.0))


def _children(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if is_entry_name(entry.name)}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise PlaceError(f"{folder}: cannot be read ({error.strerror})") from error


def checked_relative(relative: str) -> PurePosixPath:
    """A path below an entry. Raises PlaceError for one that leads out of it."""
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in relative:
        raise PlaceError(f"'{relative[:60]}' is not a file of a run")
    return path


def sync_tree(directory: Path) -> None:
    """Put every file of a directory, and the directory, on the disk."""
    for folder, _, files in os.walk(directory, topdown=False):
        for file in files:
            with Path(folder, file).open("rb") as handle:
                os.fsync(handle.fileno())
        sync_directory(Path(folder))


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Where a history lies: a local directory, or any fsspec URL read through a local mirror.

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
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from dsocr_core.errors import DsocrError, one_line

Kind = Literal["runs", "packs"]
DOCUMENTS: dict[Kind, str] = {"runs": "run.json", "packs": "pack.json"}
"""The file that makes an entry one; written last."""

_MIB = 1024 * 1024
DOCUMENT_LIMITS: dict[Kind, int] = {"runs": 4 * _MIB, "packs": 32 * _MIB}
ANNOTATION_LIMIT = 32 * _MIB
"""Bytes; what is larger is not read."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


class StorageError(DsocrError):
    """The history cannot be read or written; names the storage and the cause."""


class NoRoom(StorageError):
    """The machine takes no temporary file: no fault of an entry."""


class EntryExists(StorageError):
    """An entry of this name is there already; entries never change."""


class EntryGone(StorageError):
    """An entry that was listed is there no longer: it was folded into a pack, or deleted."""


@dataclass(frozen=True)
class Leftover:
    """What a writer that did not finish left behind."""

    path: str
    bytes: int
    age_s: float


class Storage(Protocol):
    """Storage of a history. Names are those of entries, never paths."""

    location: str

    def names(self, kind: Kind) -> set[str]:
        """Entries that are there; an entry may lack its document while it is uploaded."""

    def versions(self) -> dict[str, str]:
        """Runs, each with a text that is another when one of its tables is."""

    def annotation_versions(self) -> dict[str, str]: ...

    def glance(self) -> object:
        """What is another when runs or annotations come or go; cheaper than `versions`."""

    def document(self, kind: Kind, name: str) -> bytes | None:
        """The entry's document, None while there is none. Raises Refused when it is too large."""

    def directory(self, kind: Kind, name: str) -> Path:
        """A local directory with the entry's document and tables. Raises EntryGone."""

    def file(self, kind: Kind, name: str, relative: str) -> Path:
        """A local copy of any file of an entry. Raises EntryGone."""

    def fetch_again(self, kind: Kind, name: str) -> bool:
        """Drop a local copy of an entry, which is then fetched anew; False where there is no copy."""

    def files(self, kind: Kind, name: str) -> list[str]:
        """All files of an entry, by their path in it. Raises EntryGone."""

    def scratch(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A new local directory to write an entry in, locked while in use; left after an exception."""

    def publish(self, written: Path, kind: Kind, name: str) -> Path:
        """Make a directory from `scratch` an entry. Raises EntryExists or StorageError."""

    def remove(self, kind: Kind, name: str) -> None:
        """Take an entry away, visibly at once."""

    def annotation_names(self) -> set[str]: ...

    def read_annotation(self, name: str) -> bytes:
        """Raises FileNotFoundError, Refused when it is too large."""

    def write_annotation(self, name: str, content: bytes) -> None:
        """Put a new annotation file down, whole or not at all."""

    def remove_annotation(self, name: str) -> None: ...

    def leftovers(self) -> list[Leftover]:
        """Directories of writers that are gone."""

    def clear(self) -> list[Leftover]:
        """Delete the leftovers; returns them."""


@contextlib.contextmanager
def writing(what: object, kind: type[StorageError] = StorageError) -> Iterator[None]:
    """What the system or pyarrow raises inside becomes one line that names what was written."""
    try:
        yield
    except OSError as error:
        # Of its own words pyarrow makes a paragraph.
        cause = os.strerror(error.errno) if error.errno else one_line(error)
        raise kind(f"{what}: could not be written ({cause})") from error


def is_entry_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def checked_relative(relative: str) -> PurePosixPath:
    """A path below an entry. Raises StorageError for one that leads out of it."""
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in relative:
        raise StorageError(f"'{relative[:60]}' is not a file of a run")
    return path


def cache_directory() -> Path:
    """Where indexes and mirrors lie: `DSOCR_CACHE`, else `dsocr` in the user's cache directory."""
    if own := os.environ.get("DSOCR_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dsocr"


def entry_names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if is_entry_name(entry.name)}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise StorageError(f"{folder}: cannot be read ({error.strerror})") from error


def versions_in(folder: Path) -> dict[str, str]:
    """A text for each directory in `folder` that is another when one of its files is. Raises StorageError."""
    found = {}
    for name in entry_names(folder):
        with contextlib.suppress(OSError), os.scandir(folder / name) as entries:
            files = sorted((each.name, version_of(each)) for each in entries if not each.is_dir())
            found[name] = hashlib.sha256(os.fsencode(repr(files))).hexdigest()[:32]
    return found


def version_of(entry: os.DirEntry[str]) -> str:
    """Raises OSError."""
    status = entry.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"

"""A history in a directory of this machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from dsocr_core.history.storage.base import (
    ANNOTATION_LIMIT,
    DOCUMENT_LIMITS,
    DOCUMENTS,
    EntryExists,
    EntryGone,
    Kind,
    Leftover,
    StorageError,
    checked_relative,
    entry_names,
    is_entry_name,
    version_of,
    versions_in,
    writing,
)
from dsocr_core.history.storage.scratch import (
    clear_in,
    held_directory,
    leftovers_in,
    sync_directory,
    sync_tree,
)
from dsocr_core.outside.untrusted import read_bytes


class LocalStorage:
    """A directory of this machine (or a file system it has mounted)."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.location = str(root)

    def names(self, kind: Kind) -> set[str]:
        return entry_names(self.root / kind)

    def versions(self) -> dict[str, str]:
        return versions_in(self.root / "runs")

    def annotation_versions(self) -> dict[str, str]:
        return self._stats("annotations")

    def glance(self) -> object:
        return self._stats("runs"), self._stats("annotations"), self.names("packs")

    def _stats(self, folder: str) -> dict[str, str]:
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self.root / folder) as found,
        ):
            return {each.name: version_of(each) for each in found if is_entry_name(each.name)}
        return {}

    def document(self, kind: Kind, name: str) -> bytes | None:
        file = self._entry(kind, name) / DOCUMENTS[kind]
        return read_bytes(file, DOCUMENT_LIMITS[kind]) if os.path.lexists(file) else None

    def directory(self, kind: Kind, name: str) -> Path:
        entry = self._entry(kind, name)
        if not entry.is_dir():
            raise EntryGone(f"{entry}: not there any longer")
        return entry

    def file(self, kind: Kind, name: str, relative: str) -> Path:
        file = self._entry(kind, name) / checked_relative(relative)
        try:
            there = file.is_file()
        except OSError as error:  # a name longer than the system takes
            raise EntryGone(f"{file}: cannot be read ({error.strerror})") from error
        if not there:
            raise EntryGone(f"{file}: not there")
        return file

    def fetch_again(self, kind: Kind, name: str) -> bool:
        return False

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
            raise StorageError(f"{entry}: could not be removed ({error.strerror})") from error
        shutil.rmtree(away, ignore_errors=True)

    def annotation_names(self) -> set[str]:
        return entry_names(self.root / "annotations")

    def read_annotation(self, name: str) -> bytes:
        file = self.root / "annotations" / name
        if not os.path.lexists(file):
            raise FileNotFoundError(file)
        return read_bytes(file, ANNOTATION_LIMIT)

    def write_annotation(self, name: str, content: bytes) -> None:
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

    def remove_annotation(self, name: str) -> None:
        with writing(self.root / "annotations" / name):
            (self.root / "annotations" / name).unlink(missing_ok=True)

    def leftovers(self) -> list[Leftover]:
        return leftovers_in(self.root / "unfinished")

    def clear(self) -> list[Leftover]:
        return clear_in(self.root / "unfinished")

    def _entry(self, kind: Kind, name: str) -> Path:
        if not is_entry_name(name):
            raise StorageError(f"'{name[:60]}' is no name of a run")
        return self.root / kind / name

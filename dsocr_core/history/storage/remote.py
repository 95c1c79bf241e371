"""A history in an object store: any fsspec URL, read through a local mirror of what never changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from dsocr_core.errors import DsocrError
from dsocr_core.history.storage.base import (
    ANNOTATION_LIMIT,
    DOCUMENT_LIMITS,
    DOCUMENTS,
    EntryExists,
    EntryGone,
    Kind,
    Leftover,
    StorageError,
    cache_directory,
    checked_relative,
    is_entry_name,
)
from dsocr_core.history.storage.scratch import clear_in, held_directory, leftovers_in
from dsocr_core.outside.untrusted import Refused, read_bytes


class RemoteStorage:
    """A bucket or any other file system of fsspec.

    Object stores have no rename: an entry's document is uploaded last, and taken away first. The mirror
    lies in the user's cache directory and may be deleted at any time.
    """

    def __init__(self, url: str, mirror: Path | None = None) -> None:
        """Raises StorageError when the scheme is not supported or its package is not installed."""
        self.location = url.rstrip("/")
        try:
            self._store, self._base = fsspec.core.url_to_fs(self.location, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            reason = " ".join(str(error).split())
            raise StorageError(
                f"{url}: {reason}; give a path, or a URL that fsspec opens, with its package installed"
            ) from error
        self.root = (
            mirror or cache_directory() / "history" / hashlib.sha256(self.location.encode()).hexdigest()[:16]
        )
        self.root.mkdir(parents=True, exist_ok=True)

    # --- entries --------------------------------------------------------------------------------

    def names(self, kind: Kind) -> set[str]:
        return {name for name in self._listing(kind) if is_entry_name(name)}

    def versions(self) -> dict[str, str]:
        """An upload that is under way has no document."""
        return {name: "" for name in self.names("runs") if self.document("runs", name) is not None}

    def annotation_versions(self) -> dict[str, str]:
        return dict.fromkeys(self.annotation_names(), "")

    def glance(self) -> object:
        return self.versions(), self.annotation_names(), self.names("packs")

    def document(self, kind: Kind, name: str) -> bytes | None:
        mirrored = self._mirror(kind, name) / DOCUMENTS[kind]
        if os.path.lexists(mirrored):
            return read_bytes(mirrored, DOCUMENT_LIMITS[kind])
        return self._read(f"{kind}/{name}/{DOCUMENTS[kind]}", DOCUMENT_LIMITS[kind])

    def directory(self, kind: Kind, name: str) -> Path:
        target = self._mirror(kind, name)
        if target.is_dir():
            return target
        with held_directory(self.root / "unfinished", name) as part, self._errors(f"{kind}/{name}"):
            for relative in map(checked_relative, self._found(kind, name)):
                if not _is_large(relative):
                    (part / relative).parent.mkdir(parents=True, exist_ok=True)
                    self._store.get_file(self._path(kind, name, str(relative)), str(part / relative))
            if not (part / DOCUMENTS[kind]).is_file():
                shutil.rmtree(part)
                raise EntryGone(f"{self.location}/{kind}/{name}: not there any longer")
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                part.rename(target)
            except OSError:
                shutil.rmtree(part)
                if not target.is_dir():  # else another process fetched it at the same time
                    raise
        return target

    def file(self, kind: Kind, name: str, relative: str) -> Path:
        inside = checked_relative(relative)
        target = self.directory(kind, name) / inside
        if not target.is_file():
            content = self._read(f"{kind}/{name}/{inside}")
            if content is None:
                raise EntryGone(f"{self.location}/{kind}/{name}/{inside}: not there")
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".part-", delete=False) as handle:
                handle.write(content)
            Path(handle.name).rename(target)
        return target

    def fetch_again(self, kind: Kind, name: str) -> bool:
        mirror = self._mirror(kind, name)
        there = mirror.is_dir()
        shutil.rmtree(mirror, ignore_errors=True)
        return there

    def files(self, kind: Kind, name: str) -> list[str]:
        found = self._found(kind, name)
        if DOCUMENTS[kind] not in found:
            raise EntryGone(f"{self.location}/{kind}/{name}: not there any longer")
        return found

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        with held_directory(self.root / "unfinished", name) as directory:
            yield directory

    def publish(self, written: Path, kind: Kind, name: str) -> Path:
        if not is_entry_name(name):
            raise StorageError(f"'{name[:60]}' is no name of a run")
        if self.document(kind, name) is not None:
            raise EntryExists(f"{self.location}/{kind}/{name}: is there already")
        files = sorted(path for path in written.rglob("*") if path.is_file())
        last = written / DOCUMENTS[kind]
        with self._errors(f"{kind}/{name}"):
            for file in [*(file for file in files if file != last), last]:
                self._store.put_file(str(file), self._path(kind, name, file.relative_to(written).as_posix()))
        target = self._mirror(kind, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            written.rename(target)
        return target

    def remove(self, kind: Kind, name: str) -> None:
        if not is_entry_name(name):
            raise StorageError(f"'{name[:60]}' is no name of a run")
        with self._errors(f"{kind}/{name}"), contextlib.suppress(FileNotFoundError):
            self._store.rm_file(self._path(kind, name, DOCUMENTS[kind]))
            self._store.rm(self._path(kind, name), recursive=True)
        shutil.rmtree(self._mirror(kind, name), ignore_errors=True)

    # --- annotations ----------------------------------------------------------------------------

    def annotation_names(self) -> set[str]:
        return {name for name in self._listing("annotations") if is_entry_name(name)}

    def read_annotation(self, name: str) -> bytes:
        content = self._read(f"annotations/{name}", ANNOTATION_LIMIT)
        if content is None:
            raise FileNotFoundError(name)
        return content

    def write_annotation(self, name: str, content: bytes) -> None:
        with self._errors(f"annotations/{name}"):
            self._store.pipe_file(self._path("annotations", name), content)

    def remove_annotation(self, name: str) -> None:
        with self._errors(f"annotations/{name}"), contextlib.suppress(FileNotFoundError):
            self._store.rm_file(self._path("annotations", name))

    # --- what a crash left ----------------------------------------------------------------------

    def leftovers(self) -> list[Leftover]:
        """Local ones. An upload that did not end is not listed: nobody can tell it from one under way."""
        return leftovers_in(self.root / "unfinished")

    def clear(self) -> list[Leftover]:
        return clear_in(self.root / "unfinished")

    # --- the store ------------------------------------------------------------------------------

    def _path(self, *parts: str) -> str:
        return "/".join([self._base, *parts])

    def _mirror(self, kind: Kind, name: str) -> Path:
        if not is_entry_name(name):
            raise StorageError(f"'{name[:60]}' is no name of a run")
        return self.root / kind / name

    def _listing(self, folder: str) -> list[str]:
        with self._errors(folder), contextlib.suppress(FileNotFoundError):
            self._store.invalidate_cache()
            rows: list[Any] = self._store.ls(self._path(folder), detail=False)
            return [str(row).rstrip("/").rpartition("/")[2] for row in rows]
        return []

    def _found(self, kind: Kind, name: str) -> list[str]:
        """All files of an entry in the store, by their path in it."""
        base = self._path(kind, name)
        with self._errors(f"{kind}/{name}"):
            return sorted(str(path).removeprefix(base).lstrip("/") for path in self._store.find(base))

    def _read(self, relative: str, limit: int | None = None) -> bytes | None:
        """The content of a file, None when there is none. Raises Refused above `limit` bytes."""
        with self._errors(relative), contextlib.suppress(FileNotFoundError):
            content: bytes = self._store.cat_file(self._path(relative), end=limit and limit + 1)
            if limit and len(content) > limit:
                raise Refused(f"more than {limit:,} bytes")
            return content
        return None

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise EntryGone(f"{self.location}/{what}: not there any longer") from error
        except DsocrError:
            raise
        except Exception as error:
            raise StorageError(f"{self.location}/{what}: {' '.join(str(error).split())[:200]}") from error


def _is_large(relative: PurePosixPath) -> bool:
    """Pictures and the like are fetched one by one, when somebody opens them."""
    own = relative.parts[2:] if relative.parts[0] == "backends" else relative.parts
    return (own or relative.parts)[0] in ("viz", "clean", "files") or own[:2] == ("vendor", "viz")

"""Directories in the making: locked by their writer, so that a dead writer's leftover can be recognised."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from dsocr_core.history.storage.base import Leftover, StorageError, entry_names


@contextlib.contextmanager
def held_directory(parent: Path, name: str) -> Iterator[Path]:
    """A new directory with a lock on it that ends with the process: a leftover has none."""
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
        raise StorageError(f"{directory}: could not be made ({error.strerror})") from error
    try:
        yield directory
    finally:
        os.close(handle)


def leftovers_in(parent: Path, prefix: str = "") -> list[Leftover]:
    """Directories of this user under `parent`, of names that begin so, that nobody holds."""
    found = []
    for name in _own_names(parent, prefix):
        with _unheld(parent / name) as free:
            if free:
                found.append(_leftover(parent / name))
    return found


def clear_in(parent: Path, prefix: str = "") -> list[Leftover]:
    """Delete those of `leftovers_in`; gives what is gone."""
    cleared = []
    for name in _own_names(parent, prefix):
        with _unheld(parent / name) as free:
            if free:
                leftover = _leftover(parent / name)
                shutil.rmtree(parent / name, ignore_errors=True)
                if not (parent / name).exists():
                    cleared.append(leftover)
    return cleared


def _own_names(parent: Path, prefix: str) -> list[str]:
    names = (name for name in entry_names(parent) if name.startswith(prefix))
    return sorted(name for name in names if not prefix or (parent / name).lstat().st_uid == os.getuid())


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

"""Directories in the making: locked by their writer, so that a dead writer's leftover can be recognised."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dsocr_core.runs.storage.store import StorageError


@dataclass(frozen=True)
class Leftover:
    """Rest that a writer left which did not finish."""

    path: str
    bytes: int
    age_s: float
    stays: str = ""
    """Why it could not be deleted."""


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
        raise StorageError(
            f"{directory}: could not be made ({error.strerror}); let DSOCR_RUNS name a writable folder"
        ) from error
    try:
        yield directory
    finally:
        os.close(handle)


def leftovers_in(parent: Path, prefix: str = "", clear: bool = False) -> list[Leftover]:
    """Directories of this user under `parent`, of names that begin so, that no process has locked.

    With `clear` they are deleted.
    """
    found = []
    for directory in sorted(parent.iterdir()) if parent.is_dir() else ():
        if not directory.name.startswith(prefix) or (prefix and not _is_own(directory)):
            continue
        with _unheld(directory) as free:
            if free:
                leftover = _leftover(directory)
                found.append(replace(leftover, stays=_why_kept(directory)) if clear else leftover)
    return found


def _is_own(directory: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return directory.lstat().st_uid == os.getuid()
    return False


def _why_kept(directory: Path) -> str:
    """Delete a directory; why it is still there, or nothing."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}" if directory.exists() else ""
    return ""


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

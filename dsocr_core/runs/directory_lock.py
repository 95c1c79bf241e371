"""The lock of a directory that one process writes into; it ends with the process, so a crash leaves none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.writing import require_writable

LOCK_FILE = ".lock"


class DirectoryBusy(DsocrError):
    """Another run writes into the directory; names it."""


@contextlib.contextmanager
def writing_into(directory: Path) -> Iterator[None]:
    """Lock a run directory, made if need be, and removed where nothing was written.

    Raises DirectoryBusy, DsocrError when nothing can be written there.
    """
    file = directory / LOCK_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = _locked(file)
    except BlockingIOError:
        with contextlib.suppress(OSError):
            raise DirectoryBusy(
                f"{directory}: process {file.read_bytes()[:200].decode(errors='replace')} writes into it; "
                "wait for its end or give another --out"
            ) from None
        raise DirectoryBusy(f"{directory}: another run ended just now; try again") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        cause = getattr(error, "strerror", None) or str(error)
        raise DsocrError(
            f"{directory}: results could not be written ({cause}); give --out, or DSOCR_RUNS for all runs"
        ) from error
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds without a name
            since = f"{os.getpid()} on {platform.node()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            os.ftruncate(handle, 0)
            os.pwrite(handle, since.encode(), 0)
        require_writable(directory)
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
        with contextlib.suppress(OSError):
            directory.rmdir()  # where nothing was written
        os.close(handle)


def _locked(file: Path) -> int:
    """A descriptor of the file with the lock on it. Raises BlockingIOError where another process has it."""
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.exists() and os.fstat(handle).st_ino == file.stat().st_ino:
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder ended and took the file away in between

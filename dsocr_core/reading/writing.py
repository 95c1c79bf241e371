"""Files written whole or not at all, and what the system says where they cannot be."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import why_unwritable


class StorageError(DsocrError):
    """A storage cannot be read or written; names it and the cause."""


@contextlib.contextmanager
def writing(what: object) -> Iterator[None]:
    """Make one line, which names what was written, of what the system or pyarrow raises inside."""
    try:
        yield
    except OSError as error:
        # Of its own words pyarrow makes a paragraph.
        cause = os.strerror(error.errno) if error.errno else one_line(error)
        words = f"could not be written ({cause}); make room or give another directory"
        raise StorageError(f"{what}: {words}") from error.with_traceback(None)  # which holds what was written


def require_writable(folder: Path) -> None:
    """Raises DsocrError where nothing can be written in a folder, existing or not."""
    if why := why_unwritable(folder):
        raise DsocrError(f"{folder}: {why}")


def write_whole(file: Path, content: bytes, sync: bool = False) -> None:
    """Write a file, or leave it as it was; with `sync` it outlasts the machine. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".part-{secrets.token_hex(8)}")
    try:
        with temporary.open("wb") as handle:
            handle.write(content)
            if sync:
                handle.flush()
                os.fsync(handle.fileno())
        temporary.replace(file)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()

"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from dsocr_core.base.errors import DsocrError

_PROBE_BYTES = 64 * 1024


def require_writable(folder: Path) -> None:
    """Write a little where the folder is, or will be made, and take it away. Raises DsocrError."""
    there = folder.absolute()
    try:
        while not os.path.lexists(there) and there != there.parent:
            there = there.parent
        with tempfile.TemporaryFile(dir=there) as handle:
            handle.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise DsocrError(f"{folder}: cannot be written to ({error.strerror})") from error


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
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

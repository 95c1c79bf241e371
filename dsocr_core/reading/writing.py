"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import why_unwritable


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

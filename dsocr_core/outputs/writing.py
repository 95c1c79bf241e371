"""Files of a run directory: written whole or not at all, and lines of JSON added to one."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from dsocr_core.errors import DsocrError
from dsocr_core.outside.untrusted import Refused, parse_json

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


def write_whole(file: Path, content: bytes) -> None:
    """Write a file, or leave it as it was. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".part-{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def append_line(file: Path, line: bytes) -> None:
    """Append a line, or leave the file as it was. Unbuffered: nothing is written after an error."""
    with file.open("ab", buffering=0) as handle:
        end = os.fstat(handle.fileno()).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(handle.fileno(), rest) :]
            os.fsync(handle.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # `drop_half_line` does it later
                os.ftruncate(handle.fileno(), end)
            raise


def replace_lines(file: Path, image: str, line: bytes) -> None:
    """Put a line in place of those of an image that was read again, or leave the file as it was."""
    temporary = file.with_name(f".part-{secrets.token_hex(8)}")
    try:
        with temporary.open("wb") as target:
            if file.exists():
                with file.open("rb") as source:
                    target.writelines(old for old in source if parsed(old).get("image") != image)
            target.write(line)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def drop_half_line(file: Path) -> None:
    """Cut what follows the last line end."""
    if not file.exists():
        return
    with file.open("rb+") as handle:
        end = 0
        for line in handle:
            end += len(line) if line.endswith(b"\n") else 0
        handle.truncate(end)


def parsed(line: bytes) -> dict[str, Any]:
    """The object of a line; an empty one when it holds something else."""
    try:
        return parse_json(line, any_number=True)
    except Refused:
        return {}

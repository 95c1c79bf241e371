"""Files of a run directory: written whole or not at all, and lines of JSON added to one."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_whole(file: Path, content: bytes) -> None:
    """Write a file, or leave it as it was. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".part-{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
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
            os.ftruncate(handle.fileno(), end)
            raise


def drop_lines(file: Path, image: str) -> None:
    """Rewrite the file without the lines of an image that is read again."""
    if not file.exists():
        return
    temporary = file.with_name(f".part-{secrets.token_hex(8)}")
    try:
        with file.open("rb") as source, temporary.open("wb") as target:
            target.writelines(line for line in source if not _is_about(line, image))
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
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


def _is_about(line: bytes, image: str) -> bool:
    return parsed(line).get("image") == image


def parsed(line: bytes) -> dict[str, Any]:
    """The object of a line; an empty one when it holds something else."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}

"""Untrusted files and JSON, with limits of size and depth. The caller names the file in errors."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from dsocr_core.base.errors import DsocrError

DEPTH_LIMIT = 64


class InvalidFile(DsocrError):
    """A file or a figure that is not taken; the text says why."""


class Missing(InvalidFile):
    """There is no such file."""


def read_bytes(file: Path, limit: int, follow_links: bool = False) -> bytes:
    """The content of a regular file of 1..`limit` bytes; a larger one is not read. Raises InvalidFile."""
    # Without O_NONBLOCK a pipe that took the file's name would be waited on for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        with os.fdopen(os.open(file, flags), "rb") as handle:
            status = os.fstat(handle.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidFile("not a regular file")
            if status.st_size > limit:
                raise InvalidFile(f"{status.st_size:,} bytes; at most {limit:,} are read")
            content = handle.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise Missing("not there") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise InvalidFile(f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not 0 < len(content) <= limit:
        raise InvalidFile(f"more than {limit:,} bytes" if content else "empty")
    return content


def parse_json(content: bytes | bytearray | str, any_number: bool = False) -> dict[str, Any]:
    """A JSON object; see `parse_value`. Raises InvalidFile."""
    data = parse_value(content, any_number)
    if not isinstance(data, dict):
        raise InvalidFile("not a JSON object")
    return data


def parse_value(content: bytes | bytearray | str, any_number: bool = False) -> Any:
    """A JSON value nested at most `DEPTH_LIMIT` deep. Raises InvalidFile.

    NaN, Infinity and whole numbers beyond 64 bits are refused; with `any_number` they become floats.
    """

    def number(digits: str) -> int | float:
        if len(digits) <= 20 and -(2**63) <= (found := int(digits)) < 2**63:
            return found
        return float(digits) if any_number else refuse("a number beyond 64 bits")

    def refuse(words: str) -> NoReturn:
        raise ValueError(words)

    try:
        data = json.loads(content, parse_int=number, parse_constant=None if any_number else refuse)
    except RecursionError as error:
        raise InvalidFile("JSON nested too deeply") from error
    except ValueError as error:
        raise InvalidFile(f"not valid JSON ({str(error)[:80]})") from error
    level = [data] if isinstance(data, (dict, list)) else []
    for _ in range(DEPTH_LIMIT):
        parts = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for each in parts for item in each if isinstance(item, (dict, list))]
    if not level:
        return data
    raise InvalidFile(f"nested deeper than {DEPTH_LIMIT} levels")

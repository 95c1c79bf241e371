"""Foreign files, read within bounds and strictly: a file is taken as it says or refused with a reason."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from dsocr_core.base.bounded_json import DEPTH_LIMIT, InvalidFile, parse_json, plain_text
from dsocr_core.base.sanitise import paired

MIB = 1024 * 1024
TEXT_LIMIT, TABLE_LIMIT, PICTURE_LIMIT = 4 * MIB, 96 * MIB, 64 * MIB
HEAD_BYTES, HEAD_LINES = 64 * 1024, 2_000
"""Bytes of a file that tell its form: what a profiled program printed comes before a table."""
GZIP, UTF16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
FILE_TIME_NOTE = "The time is the file's: the run's own is not known."
_NUMBER_LIMIT, _COUNT_LIMIT = 1e18, 2**31


@dataclass(frozen=True)
class FileProbe:
    """Begin of a file, unpacked where it is gzip: enough to tell its form."""

    file: Path
    start: bytes

    @classmethod
    def of(cls, file: Path) -> FileProbe:
        """Raises InvalidFile when the file cannot be opened, or is a pipe, which would be waited for."""
        try:
            if not file.is_file():
                raise InvalidFile("not a regular file")
            with file.open("rb") as handle:
                start = handle.read(HEAD_BYTES)
            if start.startswith(GZIP):
                start = zlib.decompressobj(wbits=31).decompress(start, HEAD_BYTES)
                if not start:
                    raise InvalidFile("not a whole gzip file, or an empty one")
        except OSError as error:
            raise InvalidFile(f"cannot be read ({error.strerror})") from error
        except zlib.error as error:
            raise InvalidFile(f"not a whole gzip file ({error})") from error
        return cls(file, start)

    @cached_property
    def text(self) -> str:
        return self.start.decode("utf-16" if self.start[:2] in UTF16 else "utf-8-sig", errors="replace")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()[:HEAD_LINES]


def unpacked(content: bytes, limit: int) -> bytes:
    """A file's content, that of a gzip file unpacked, bounded. Raises InvalidFile."""
    if not content.startswith(GZIP):
        return content
    reader = zlib.decompressobj(wbits=31)
    try:
        data = reader.decompress(content, limit + 1)
    except zlib.error as error:
        raise InvalidFile(f"not a whole gzip file ({error})") from error
    if len(data) > limit:
        raise InvalidFile(f"more than {limit:,} bytes when unpacked")
    if not reader.eof or reader.unused_data:
        raise InvalidFile("not a whole gzip file")
    return data


def as_text(content: bytes) -> str:
    """UTF-8, or UTF-16 with its mark, as text; see `plain_text`. Raises InvalidFile."""
    try:
        text = content.decode("utf-16").replace("\r\n", "\n") if content[:2] in UTF16 else plain_text(content)
    except UnicodeDecodeError as error:
        raise InvalidFile(f"not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise InvalidFile("not text: it holds zero bytes")
    return text


def as_json(text: str) -> dict[str, Any]:
    """A JSON object of finite numbers. Raises InvalidFile; NaN, Infinity and repeated keys are refused."""
    checked: dict[str, Any] = _checked(parse_json(text, repeats=False))
    return checked


def as_yaml(text: str) -> dict[str, Any]:
    """A YAML mapping as plain values with text keys. Raises InvalidFile; aliases are refused."""
    try:
        # An alias makes one node appear twice, and twice again inside that: a few lines become gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InvalidFile("YAML with aliases is not read")
        data = yaml.safe_load(text)
    except RecursionError as error:
        raise InvalidFile("YAML nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidFile(f"not YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(data, dict):
        raise InvalidFile("not a YAML mapping")
    checked: dict[str, Any] = _checked(data)
    return checked


def _checked(value: Any, depth: int = 0) -> Any:
    """A value with JSON types only: numbers finite and of 64 bits, texts that can be encoded."""
    if depth > DEPTH_LIMIT:
        raise InvalidFile(f"nested deeper than {DEPTH_LIMIT} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if not math.isfinite(value) or not -(2**63) <= value < 2**63:
            raise InvalidFile(f"{str(value)[:20]} is not a number of 64 bits")
        return value
    if isinstance(value, Mapping):
        return {paired(str(key)): _checked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_checked(item, depth + 1) for item in value]
    return paired(str(value))  # a text, or a YAML date


def number(value: Any, name: str) -> float | None:
    """A number of 0..1e18, None for a missing one. Raises InvalidFile for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidFile(f"{name} is not a number")
    if not 0 <= value <= _NUMBER_LIMIT:
        raise InvalidFile(f"{name} is {value:g}: out of all bounds")
    return float(value)


def whole(value: Any, name: str) -> int | None:
    """A whole number of 0 and more, None for a missing one. Raises InvalidFile for anything else."""
    result = number(value, name)
    if result is not None and (not result.is_integer() or result >= _COUNT_LIMIT):
        raise InvalidFile(f"{name} is {value}: not a whole number below {_COUNT_LIMIT:,}")
    return None if result is None else int(result)


def text_or_none(value: Any, name: str) -> str | None:
    """A text, None for a missing or empty one. Raises InvalidFile for anything else."""
    if value is not None and not isinstance(value, str):
        raise InvalidFile(f"{name} is not a text")
    return value or None


def mapping(value: Any, name: str) -> dict[str, Any]:
    """An object, empty for a missing one. Raises InvalidFile for anything else."""
    if value is not None and not isinstance(value, dict):
        raise InvalidFile(f"{name} is not an object")
    return value or {}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_digest(file: Path) -> str:
    """Hash a file that is too large to be held. Raises InvalidFile."""
    try:
        with file.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise InvalidFile(f"cannot be read ({error.strerror})") from error


def file_time(file: Path) -> str:
    """Time at which a file was last written, ISO 8601 in UTC: the nearest there is to the time of its run."""
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except (OSError, OverflowError, ValueError) as error:
        raise InvalidFile(f"has no time ({error})") from error

"""Foreign files, read within bounds and strictly: a file is taken as it says or refused with a reason."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dsocr_core.base.bounded_json import InvalidFile, parse_json, plain_text
from dsocr_core.base.sanitise import paired

MIB = 1024 * 1024
TEXT_LIMIT, TABLE_LIMIT, PICTURE_LIMIT = 4 * MIB, 96 * MIB, 64 * MIB
HEAD_BYTES = 64 * 1024
"""Bytes of a file that tell its form: what a profiled program printed comes before a table."""
GZIP, UTF16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
FILE_TIME_NOTE = "The time is the file's: the run's own is not known."
_NUMBER_LIMIT, _COUNT_LIMIT = 1e18, 2**31


def head_of(file: Path) -> str:
    """Begin of a file as text, unpacked where it is gzip: enough to tell its form.

    Raises InvalidFile when the file cannot be opened, or is a pipe, which would be waited for.
    """
    try:
        if not file.is_file():
            raise InvalidFile("not a regular file")
        with file.open("rb") as handle:
            start = unpacked(handle.read(HEAD_BYTES), HEAD_BYTES, whole=False)
    except OSError as error:
        raise InvalidFile(f"cannot be read ({error.strerror})") from error
    return start.decode("utf-16" if start[:2] in UTF16 else "utf-8-sig", errors="replace")


def unpacked(content: bytes, limit: int, whole: bool = True) -> bytes:
    """A file's content, or up to `limit` bytes of it; that of a gzip file unpacked. Raises InvalidFile."""
    if not content.startswith(GZIP):
        return content
    reader = zlib.decompressobj(wbits=31)
    try:
        data = reader.decompress(content, limit + whole)
    except zlib.error as error:
        raise InvalidFile(f"not a whole gzip file ({error})") from error
    if len(data) > limit:
        raise InvalidFile(f"more than {limit:,} bytes when unpacked")
    if not data or (whole and (not reader.eof or reader.unused_data)):
        raise InvalidFile("not a whole gzip file, or an empty one")
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


def as_json(text: str) -> Fields:
    """A JSON object of finite numbers. Raises InvalidFile; NaN, Infinity and repeated keys are refused."""
    data = parse_json(text, repeats=False)
    return _plain(data) if "\\u" in text else Fields(data)


def as_yaml(text: str) -> Fields:
    """A YAML mapping as plain values with text keys. Raises InvalidFile; aliases are refused."""
    try:
        # An alias makes one node appear twice, and twice again inside that: a few lines become gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InvalidFile("YAML with aliases is not read")
        return _plain(yaml.safe_load(text))
    except RecursionError as error:
        raise InvalidFile("YAML nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InvalidFile(f"not YAML ({' '.join(str(error).split())[:200]})") from error


def _plain(data: Any) -> Fields:
    """Values that JSON has, with texts that can be encoded: dates as texts, half surrogates as "?"."""
    return Fields(parse_json(paired(json.dumps(data, ensure_ascii=False, default=str))))


class Fields(Mapping[str, Any]):
    """An object of a file. A field that is missing is None; one of another kind raises InvalidFile."""

    def __init__(self, data: object, name: str = "") -> None:
        if data is not None and not isinstance(data, Mapping):
            raise InvalidFile(f"{name} is not an object")
        self.data, self.name = data or {}, name

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def number(self, key: str) -> float | None:
        """A number of 0 and more."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidFile(f"{self._path(key)} is not a number")
        if not 0 <= value <= _NUMBER_LIMIT:
            raise InvalidFile(f"{self._path(key)} is {value:g}: out of all bounds")
        return float(value)

    def whole(self, key: str) -> int | None:
        """A whole number of 0 and more."""
        value = self.number(key)
        if value is not None and (not value.is_integer() or value >= _COUNT_LIMIT):
            raise InvalidFile(f"{self._path(key)} is {value}: not a whole number below {_COUNT_LIMIT:,}")
        return None if value is None else int(value)

    def text(self, key: str) -> str | None:
        """A text; None for an empty one, too."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise InvalidFile(f"{self._path(key)} is not a text")
        return value or None

    def object(self, key: str) -> Fields:
        """An object, empty where it is missing."""
        return Fields(self.data.get(key), self._path(key))

    def objects(self, key: str) -> list[Fields]:
        """A list of objects, empty where it is missing."""
        values = self.data.get(key, [])
        if not isinstance(values, list):
            raise InvalidFile(f"{self._path(key)} is not a list")
        return [Fields(value, f"{self._path(key)}[{place}]") for place, value in enumerate(values)]

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}"[-200:].lstrip(".")


def digest(content: bytes | Path) -> str:
    """SHA-256 of a content, or of a file that is too large for memory. Raises InvalidFile."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    try:
        with content.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise InvalidFile(f"cannot be read ({error.strerror})") from error


def file_time(file: Path) -> str:
    """Time at which a file was last written, ISO 8601 in UTC: the nearest there is to the time of its run."""
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except (OSError, OverflowError, ValueError) as error:
        raise InvalidFile(f"has no time ({error})") from error

"""Checksums of a run's files, as `sha256sum` writes and checks them."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.base.errors import DsocrError

CHECKSUMS = "SHA256SUMS"
_LINE = re.compile(rb"([0-9a-f]{64})  ([^\n]+)\n")
_LIMIT = 64 * 1024 * 1024  # bytes


def write_checksums(directory: Path, also: Mapping[str, Path] = {}) -> None:
    """List every file under a directory, and others by name, with its SHA-256. Raises OSError."""
    files = {each.relative_to(directory).as_posix(): each for each in directory.rglob("*") if each.is_file()}
    files |= also
    files.pop(CHECKSUMS, None)
    # A name that would need quoting in the list is nobody's of this project.
    names = sorted(name for name in files if not {"\n", "\\"} & set(name))
    content = os.fsencode("".join(f"{_digest(files[name])}  {name}\n" for name in names))
    (directory / CHECKSUMS).write_bytes(content + _last_line(content))


def _digest(file: Path) -> str:
    if not stat.S_ISREG(file.stat().st_mode):  # a pipe would be waited on for ever
        raise OSError(errno.EINVAL, "not a regular file")
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _last_line(content: bytes) -> bytes:
    """Make the digest of the list itself; `sha256sum` skips it as a comment."""
    return b"# %s  the lines above\n" % hashlib.sha256(content).hexdigest().encode()


def read_checksums(directory: Path) -> dict[str, str]:
    """The SHA-256 of each listed file. Raises DsocrError, also where there is no list."""
    try:
        content = read_bytes(directory / CHECKSUMS, _LIMIT, follow_links=True)
    except InvalidFile as error:
        cause = "missing" if isinstance(error, Missing) else error
        raise DsocrError(f"{CHECKSUMS}: {cause}") from error
    lines, mark, _ = content.rpartition(b"# ")
    if not mark or content != lines + _last_line(lines):
        raise DsocrError(f"{CHECKSUMS}: damaged: its last line is not that of the lines above")
    return {os.fsdecode(name): digest.decode() for digest, name in _LINE.findall(lines)}


def verify(directory: Path, checksums: Mapping[str, str], names: Iterable[str]) -> None:
    """Raises DsocrError for the first of these files that differs, is missing or is not listed."""
    for name in names:
        if name not in checksums:
            raise DsocrError(f"{name}: {CHECKSUMS} does not list it")
        try:
            if _digest(directory / name) != checksums[name]:
                raise DsocrError(f"{name}: damaged: it is not what {CHECKSUMS} says was written")
        except FileNotFoundError:
            raise DsocrError(f"{name}: missing") from None
        except OSError as error:
            raise DsocrError(f"{name}: cannot be read ({error.strerror})") from error

"""Checksums of a run's files, as `sha256sum` writes and checks them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsocr_core.base.errors import DsocrError

CHECKSUMS = "SHA256SUMS"
_LINE = re.compile(rb"([0-9a-f]{64})  ([^\n]+)\n")
_LIMIT = 64 * 1024 * 1024
"""Bytes."""


class Damaged(DsocrError):
    """A file of the history is not what was written; names the file, in its entry, and the cause."""

    def __init__(self, file: str, cause: str) -> None:
        super().__init__(f"{file}: {cause}")
        self.cause = cause


def write_checksums(directory: Path, also: Mapping[str, Path] = {}) -> None:
    """List every file under a directory, and others by name, with its SHA-256. Raises OSError."""
    lines = []
    files = {**{name: directory / name for name in _files(directory)}, **also}
    for name, file in sorted(files.items()):
        with file.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        lines.append(f"{digest}  {name}\n")
    content = os.fsencode("".join(lines))
    (directory / CHECKSUMS).write_bytes(content + _last_line(content))


def _last_line(content: bytes) -> bytes:
    """Make the digest of the list itself; `sha256sum` skips it as a comment."""
    return b"# %s  the lines above\n" % hashlib.sha256(content).hexdigest().encode()


def _files(directory: Path) -> list[str]:
    found = (
        Path(folder, name).relative_to(directory).as_posix()
        for folder, _, names in os.walk(directory)
        for name in names
    )
    # A name that would need quoting in the list is nobody's of this project.
    return sorted(name for name in found if name != CHECKSUMS and not {"\n", "\\"} & set(name))


def read_checksums(directory: Path) -> dict[str, str] | None:
    """The SHA-256 of each listed file; None where there is no list. Raises Damaged."""
    file = directory / CHECKSUMS
    try:
        if file.stat().st_size > _LIMIT:
            raise Damaged(CHECKSUMS, "too large")
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Damaged(CHECKSUMS, f"cannot be read ({error.strerror})") from error
    lines, mark, _ = content.rpartition(b"# ")
    if not mark or content != lines + _last_line(lines):
        raise Damaged(CHECKSUMS, "damaged: its last line is not that of the lines above")
    return {os.fsdecode(name): digest.decode() for digest, name in _LINE.findall(lines)}


def verify(directory: Path, checksums: Mapping[str, str], names: Iterable[str]) -> None:
    """Raises Damaged for the first of these files that differs, is missing or is not listed."""
    for name in names:
        if name not in checksums:
            raise Damaged(name, f"{CHECKSUMS} does not list it")
        file = directory / name
        try:
            if not stat.S_ISREG(file.stat().st_mode):  # a pipe would be waited on for ever
                raise Damaged(name, "not a regular file")
            with file.open("rb") as handle:
                found = hashlib.file_digest(handle, "sha256").hexdigest()
        except FileNotFoundError:
            raise Damaged(name, "missing") from None
        except OSError as error:
            raise Damaged(name, f"cannot be read ({error.strerror})") from error
        if found != checksums[name]:
            raise Damaged(name, f"damaged: it is not what {CHECKSUMS} says was written")

"""Zip archives of runs, unpacked within bounds: what is odd in one costs itself alone."""

from __future__ import annotations

import calendar
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.errors import one_line
from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import paired
from dsocr_core.runs.importers.imported import MIB, Skipped

DEPTH_LIMIT = 24
ENTRY_LIMIT, BYTES_LIMIT, FILE_BYTES = 100_000, 4096 * MIB, 1024 * MIB


@contextmanager
def unpacked(file: Path) -> Iterator[tuple[Path, list[Skipped]]]:
    """A temporary directory with a zip's files, and those that were left out. Raises InvalidFile."""
    if not file.is_file():  # a pipe would be waited on for ever
        raise InvalidFile("not a regular file")
    with Temporary("import") as name:
        try:
            with zipfile.ZipFile(file) as archive:
                left_out = _unpack(archive, file, Path(name))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InvalidFile(f"not a zip archive that can be unpacked ({one_line(error, 120)})") from error
        yield Path(name), left_out


def _unpack(archive: zipfile.ZipFile, file: Path, target: Path) -> list[Skipped]:
    """Unpack what is sound; returns the rest."""
    left_out: list[Skipped] = []
    entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
    if len(entries) > ENTRY_LIMIT:
        raise InvalidFile(f"{len(entries):,} entries; at most {ENTRY_LIMIT:,} are unpacked")
    left = BYTES_LIMIT
    for entry in entries:
        path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or not path.parts:
            reason = "its name leads out of the archive"
        elif len(path.parts) > DEPTH_LIMIT:
            reason = f"deeper than {DEPTH_LIMIT} folders"
        elif stat.S_IFMT(mode) and not stat.S_ISREG(mode):
            reason = "not a regular file"
        elif entry.file_size > (most := min(FILE_BYTES, left)):  # no more than it says is unpacked
            reason = f"more than {most:,} bytes"
        else:
            left -= entry.file_size
            try:
                archive.extract(entry, target)
                moment = calendar.timegm((*entry.date_time, 0, 0, 0))
                os.utime(target / path, (moment, moment))
                continue
            except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError) as error:
                with suppress(OSError):
                    (target / path).unlink()
                reason = f"cannot be unpacked ({error})"
        left_out.append(Skipped(file / paired(entry.filename)[:4096].lstrip("/"), reason))
    return left_out

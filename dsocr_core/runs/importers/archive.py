"""Zip archives, unpacked within bounds into a directory that is gone afterwards."""

from __future__ import annotations

import calendar
import errno
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import paired
from dsocr_core.base.temporary import Temporary
from dsocr_core.runs.importers.imported import Skipped
from dsocr_core.runs.importers.reading import MIB

DEPTH_LIMIT = 24
_ENTRY_LIMIT, _BYTES_LIMIT, _FILE_BYTES = 100_000, 4096 * MIB, 1024 * MIB
_OF_THE_ENTRY = (errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EILSEQ)
"""Errors of writing that an entry's own name brings about; others are the machine's."""
_BROKEN = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError)


def is_archive(file: Path) -> bool:
    return file.suffix.lower() == ".zip"


@contextmanager
def unpacked(file: Path) -> Iterator[tuple[Path, list[Skipped]]]:
    """A temporary directory with an archive's files, and those that were left out. Raises InvalidFile."""
    if not file.is_file():  # a pipe would be waited on for ever
        raise InvalidFile("not a regular file")
    try:
        temporary = Temporary("import")
    except OSError as error:
        raise InvalidFile(f"cannot be unpacked ({error.strerror or error})") from error
    with temporary as name:
        try:
            with zipfile.ZipFile(file) as archive:
                skipped = _unpack(archive, file, Path(name))
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            why = " ".join(str(error).split())[:120]
            raise InvalidFile(f"not a zip archive that can be read ({why})") from error
        except NotImplementedError as error:
            raise InvalidFile(f"not a zip archive that can be read ({error})") from error
        yield Path(name), skipped


def _unpack(archive: zipfile.ZipFile, file: Path, target: Path) -> list[Skipped]:
    """Unpack what is sound; returns the rest. Raises InvalidFile where the machine cannot write."""
    skipped: list[Skipped] = []
    entries = archive.infolist()
    if len(entries) > _ENTRY_LIMIT:
        raise InvalidFile(f"{len(entries):,} entries; at most {_ENTRY_LIMIT:,} are unpacked")
    left = _BYTES_LIMIT
    for entry in entries:
        if entry.filename.endswith("/"):  # `is_dir` fails on a name that is empty
            continue
        try:
            left -= _unpack_one(archive, entry, target / _place(entry), min(_FILE_BYTES, left))
        except (InvalidFile, OSError, *_BROKEN) as error:
            if isinstance(error, OSError) and error.errno not in (*_OF_THE_ENTRY, None):
                # Not one file's fault: a run would be taken without its pictures.
                raise InvalidFile(f"cannot be unpacked ({error.strerror})") from error
            reason = str(error) if isinstance(error, InvalidFile) else f"cannot be unpacked ({error})"
            skipped.append(Skipped(file / paired(entry.filename)[:4096].lstrip("/"), reason))
    return skipped


def _place(entry: zipfile.ZipInfo) -> PurePosixPath:
    path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise InvalidFile("its name leads out of the archive")
    if len(path.parts) > DEPTH_LIMIT:
        raise InvalidFile(f"deeper than {DEPTH_LIMIT} folders")
    if stat.S_IFMT(mode) and not stat.S_ISREG(mode):
        raise InvalidFile("not a regular file")
    return path


def _unpack_one(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, limit: int) -> int:
    """Returns the bytes written; what an entry says of its size is not believed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open(entry) as source, target.open("xb") as handle:
            while chunk := source.read(MIB):
                if handle.tell() + len(chunk) > limit:
                    raise InvalidFile(f"more than {limit:,} bytes")
                handle.write(chunk)
            written = handle.tell()
        moment = calendar.timegm((*entry.date_time, 0, 0, 0))
        os.utime(target, (moment, moment))
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return written

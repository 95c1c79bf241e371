"""Runs of this project: directories of a history or of `--out`, outputs of a cluster, zip archives."""

from __future__ import annotations

import calendar
import errno
import os
import stat
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import paired
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.importers.imported import (
    MIB,
    PICTURE_LIMIT,
    ImportedRun,
    RunFiles,
    Skipped,
    shared_folders,
)
from dsocr_core.runs.record import RunRecord, check_version
from dsocr_core.runs.results import timing_rows
from dsocr_core.runs.run_directory import RunDirectory, is_begun
from dsocr_core.runs.schema import TABLES
from dsocr_core.runs.sharded import COMPLETE, RUN, ShardedRun, readings_table
from dsocr_core.runs.storage import DOCUMENT_LIMIT

DOCUMENT = "run.json"
DEPTH_LIMIT = 24
MOST_PAGES = 200_000
"""Pages of a cluster's output: its readings are held in memory while they are written."""
_ROW_LIMIT, _TABLE_BYTES, _FILE_LIMIT, _BATCH_ROWS = 500_000, 512 * MIB, 100_000, 64
_ENTRY_LIMIT, _BYTES_LIMIT, _FILE_BYTES = 100_000, 4096 * MIB, 1024 * MIB
_MADE = {DOCUMENT, CHECKSUMS, PREDICTIONS, f"vendor/{PREDICTIONS}", *(f"{name}.parquet" for name in TABLES)}
_GONE = "reported"
"""A table that older imports of Nsight Systems have; its file stays with its run."""
_ERRORS = (DsocrError, LookupError, TypeError, ValueError, OverflowError, OSError, pa.ArrowException)
_OF_THE_ENTRY = (
    None, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EILSEQ
)  # fmt: skip
"""Errors of writing that an entry's own name brings about; others are the machine's."""


def is_own_run(directory: Path) -> bool:
    return (directory / DOCUMENT).is_file() or is_begun(directory)


def read_own_run(run: RunFiles) -> list[ImportedRun]:
    """The run in a directory with a `run.json`, whole or not at all. Raises InvalidFile.

    What `SHA256SUMS` lists is held against it, and nothing else is part of the run.
    """
    directory, run.whole = run.place, True
    if is_begun(directory):
        raise InvalidFile("not finished: dsocr run --resume goes on with it")
    try:
        document = parse_json(read_bytes(directory / DOCUMENT, DOCUMENT_LIMIT), repeats=False)
        check_version(document)
        checksums = read_checksums(directory)
        verify(directory, checksums or {}, checksums or ())
        record = RunRecord.from_json(document)
        if not isinstance(listed := document.get("tables"), dict):
            raise InvalidFile("does not say which tables it has")
        tables = {
            name: _table(directory, name, count, record.id) for name, count in listed.items() if name != _GONE
        }
    except _ERRORS as error:
        raise InvalidFile(one_line(error, 300)) from error
    files = _other_files(run, None if checksums is None else checksums.keys())
    return [ImportedRun(record, directory, {name: rows for name, rows in tables.items() if len(rows)}, files)]


def _table(directory: Path, name: str, count: object, run_id: str) -> pa.Table:
    """A table of a run without its ids, held against the run's document. Raises InvalidFile.

    It is read in small batches: a few kilobytes may stand for gigabytes.
    """
    if name not in TABLES:
        raise InvalidFile(f"there is no table '{name[:40]}'")
    file, batches, left = f"{name}.parquet", [], _TABLE_BYTES
    try:
        found = pq.ParquetFile(pa.BufferReader(read_bytes(directory / file, _TABLE_BYTES)))
        schema, rows = found.schema_arrow, found.metadata.num_rows
        if len(set(schema.names)) < len(schema.names):
            raise InvalidFile(f"{file} has a column twice")
        if rows != count or rows > _ROW_LIMIT:
            said = f"{DOCUMENT} says {str(count)[:20]}; at most {_ROW_LIMIT:,} are read"
            raise InvalidFile(f"{file} has {rows} rows, {said}")
        for batch in found.iter_batches(batch_size=_BATCH_ROWS):
            if (left := left - batch.nbytes) < 0:
                raise InvalidFile(f"{file} holds more than {_TABLE_BYTES:,} bytes")
            batches.append(batch)
        table = pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidFile(f"{file}: {one_line(error, 200)}") from error
    if "run_id" not in schema.names:
        return table
    if {*pc.unique(table["run_id"]).to_pylist()} - {run_id}:
        raise InvalidFile(f"{file} holds rows of another run")
    return table.drop_columns("run_id")


def _other_files(run: RunFiles, listed: Collection[str] | None) -> dict[str, bytes | Path]:
    """Files that are listed, but for the tables, by place; without a list all but what is made of them."""
    files: dict[str, bytes | Path] = {}
    for file in sorted(Path(folder, name) for folder, _, names in os.walk(run.place) for name in names):
        place = file.relative_to(run.place).as_posix()
        if place in _MADE or (listed is not None and place not in listed):
            continue
        try:
            if len(files) >= _FILE_LIMIT:
                raise InvalidFile(f"the run has more than {_FILE_LIMIT:,} files")
            read_bytes(file, PICTURE_LIMIT)
            files[place] = file
        except InvalidFile as error:
            run.skip(file, str(error))
    return files


# --- outputs of a cluster ---------------------------------------------------------------------------


def is_sharded_run(directory: Path) -> bool:
    return (directory / RUN).is_file() and (directory / "done").is_dir()


def read_output(run: RunFiles) -> list[ImportedRun]:
    """The run of a cluster's output in a folder. Raises InvalidFile."""
    run.whole = True
    return [read_sharded_run(str(run.place))]


def take_sharded_run(location: str, root: Path) -> str:
    """Write the run of an output into a history; its id. Raises DsocrError."""
    found = read_sharded_run(location)
    found.write(RunDirectory.create(root, found.record))
    return found.record.id


def read_sharded_run(location: str) -> ImportedRun:
    """The run of a complete output, its pages named by their path in the common folder.

    Raises InvalidFile.
    """
    try:
        run = ShardedRun(location)
        document = run.run()
        check_version(document)
        record = RunRecord.from_json(document)
        markers = sorted(run.markers(run.marker_names().values()), key=lambda marker: marker.index)
        planned = (run.document(COMPLETE) or {}).get("pages")
        found = sum(marker.pages for marker in markers)
        if found != planned or found > MOST_PAGES:
            known = "" if planned is None else f" of {planned:,}"
            raise InvalidFile(
                f"{found:,}{known} pages are read; taken are complete outputs of {MOST_PAGES:,} at most"
            )
        pages = [page for marker in markers for page in run.pages(marker)]
    except (DsocrError, LookupError, TypeError, ValueError) as error:
        raise InvalidFile(one_line(error, 300)) from error
    shared = shared_folders(PurePosixPath(page.path).parent.parts for page in pages)
    names = [PurePosixPath(*PurePosixPath(page.name).parts[shared:]).as_posix() for page in pages]
    readings = readings_table([replace(page, name=name) for page, name in zip(pages, names, strict=True)])
    at = readings.schema.get_field_index("backend")
    backend = pc.fill_null(readings["backend"], next(iter(record.backends), "unknown"))
    readings = readings.set_column(at, readings.schema.field(at), backend).drop_columns("run_id")
    return ImportedRun(record, Path(location), {"readings": readings, "timings": timing_rows(readings)})


# --- archives ---------------------------------------------------------------------------------------


@contextmanager
def unpacked_archive(file: Path) -> Iterator[tuple[Path, list[Skipped]]]:
    """A temporary directory with a zip's files, and those that were left out. Raises InvalidFile."""
    if not file.is_file():  # a pipe would be waited on for ever
        raise InvalidFile("not a regular file")
    with ExitStack() as stack:
        try:
            target = Path(stack.enter_context(Temporary("import")))
            archive = stack.enter_context(zipfile.ZipFile(file))
            skipped = _unpack(archive, file, target)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InvalidFile(f"not a zip archive that can be unpacked ({one_line(error, 120)})") from error
        yield target, skipped


def _unpack(archive: zipfile.ZipFile, file: Path, target: Path) -> list[Skipped]:
    """Unpack what is sound; returns the rest. Raises OSError where the machine cannot write."""
    skipped: list[Skipped] = []
    entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
    if len(entries) > _ENTRY_LIMIT:
        raise InvalidFile(f"{len(entries):,} entries; at most {_ENTRY_LIMIT:,} are unpacked")
    left = _BYTES_LIMIT
    for entry in entries:
        path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
        try:
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise InvalidFile("its name leads out of the archive")
            if len(path.parts) > DEPTH_LIMIT:
                raise InvalidFile(f"deeper than {DEPTH_LIMIT} folders")
            if stat.S_IFMT(mode) and not stat.S_ISREG(mode):
                raise InvalidFile("not a regular file")
            # More than an entry says of its size is not unpacked.
            if entry.file_size > (most := min(_FILE_BYTES, left)):
                raise InvalidFile(f"more than {most:,} bytes")
            left -= entry.file_size
            archive.extract(entry, target)
            moment = calendar.timegm((*entry.date_time, 0, 0, 0))
            os.utime(target / path, (moment, moment))
        except InvalidFile as error:
            reason = str(error)
        except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _OF_THE_ENTRY:
                raise  # Not one file's fault: a run would be taken without its pictures.
            with suppress(OSError):
                (target / path).unlink()
            reason = f"cannot be unpacked ({error})"
        else:
            continue
        skipped.append(Skipped(file / paired(entry.filename)[:4096].lstrip("/"), reason))
    return skipped

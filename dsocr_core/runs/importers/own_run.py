"""Runs of this project: directories of a history or of `--out`, outputs of a cluster, zip archives."""

from __future__ import annotations

import calendar
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import one_line
from dsocr_core.base.paths import Temporary
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.importers.imported import FAULTS, MIB, ImportedRun, RunFiles, Skipped, shared_folders
from dsocr_core.runs.record import RunRecord, parity_rule_of
from dsocr_core.runs.results import timing_rows
from dsocr_core.runs.run_directory import is_begun
from dsocr_core.runs.schema import TABLES
from dsocr_core.runs.sharded import RUN, Marker, ShardedRun
from dsocr_core.runs.storage import DOCUMENT_LIMIT

DEPTH_LIMIT = 24
ENTRY_LIMIT, BYTES_LIMIT, FILE_BYTES = 100_000, 4096 * MIB, 1024 * MIB
"""Limits of an archive."""
MOST_PAGES = 200_000
"""Pages of a cluster's output: its readings are held in memory while they are written."""
_ROW_LIMIT, _TABLE_BYTES, _BATCH_ROWS = 500_000, 512 * MIB, 64
_MADE = {RUN, CHECKSUMS, PREDICTIONS, f"vendor/{PREDICTIONS}", *(f"{name}.parquet" for name in TABLES)}


def is_own_run(directory: Path) -> bool:
    return (directory / RUN).is_file() or is_begun(directory)


def read_own_run(run: RunFiles) -> list[ImportedRun]:
    """The run in a directory with a `run.json`, whole or not at all. Raises InvalidFile.

    Files are checked against `SHA256SUMS`, and no other file is part of the run. An output of a cluster
    has checksums of its own.
    """
    directory, run.whole = run.place, True
    if (directory / RUN).is_file() and (directory / "done").is_dir():
        return [read_sharded_run(str(directory))]
    if is_begun(directory):
        raise InvalidFile("not finished: dsocr run --resume goes on with it")
    try:
        document = parse_json(read_bytes(directory / RUN, DOCUMENT_LIMIT))
        record = RunRecord.from_json(document)
        checksums = read_checksums(directory)
        verify(directory, checksums, checksums)
        if not isinstance(listed := document.get("tables"), dict):
            raise InvalidFile("does not say which tables it has")
        tables = {name: _table(directory, name, listed[name], record.id) for name in TABLES if name in listed}
        files = {name: directory / name for name in checksums if name not in _MADE}
        for name, file in files.items():
            if not file.resolve().is_relative_to(directory.resolve()):
                raise InvalidFile(f"{CHECKSUMS} names a file outside of the run: {name[:80]!r}")
    except (*FAULTS, OSError) as error:
        raise InvalidFile(one_line(error)) from error
    tables = {name: rows for name, rows in tables.items() if len(rows)}
    return [ImportedRun(record, directory, tables, files, parity_rule_of(document))]


def _table(directory: Path, name: str, count: object, run_id: str) -> pa.Table:
    """A table of a run without its ids, checked against the run's document. Raises InvalidFile.

    It is read in small batches: a few kilobytes may stand for gigabytes.
    """
    file, batches, left = f"{name}.parquet", [], _TABLE_BYTES
    try:
        found = pq.ParquetFile(pa.BufferReader(read_bytes(directory / file, _TABLE_BYTES)))
        schema, rows = found.schema_arrow, found.metadata.num_rows
        if len({*schema.names}) < len(schema.names):
            raise InvalidFile("a column appears twice")
        if rows != count or rows > _ROW_LIMIT:
            raise InvalidFile(f"{rows} rows, {RUN} says {count!s:.20}; at most {_ROW_LIMIT:,} are read")
        for batch in found.iter_batches(batch_size=_BATCH_ROWS):
            if (left := left - batch.nbytes) < 0:
                raise InvalidFile(f"more than {_TABLE_BYTES:,} bytes unpacked")
            batches.append(batch)
        table = pa.Table.from_batches(batches, schema)
        if "run_id" not in schema.names:
            return table
        if {*pc.unique(table["run_id"]).to_pylist()} - {run_id}:
            raise InvalidFile("rows of another run")
        return table.drop_columns("run_id")
    except (*FAULTS, OSError, MemoryError) as error:
        raise InvalidFile(f"{file}: {one_line(error, 200)}") from error


# --- outputs of a cluster ---------------------------------------------------------------------------


def read_sharded_run(location: str) -> ImportedRun:
    """The run of a complete output. Raises InvalidFile, also for more than MOST_PAGES."""
    try:
        run = ShardedRun(location)
        markers = run.complete()
    except FAULTS as error:
        raise InvalidFile(one_line(error)) from error
    if sum(marker.pages for marker in markers) > MOST_PAGES:
        raise InvalidFile(f"has more than {MOST_PAGES:,} pages; compare takes any number of two outputs")
    return run_of_shards(run, markers)


def run_of_shards(run: ShardedRun, markers: Iterable[Marker]) -> ImportedRun:
    """The run of some shards, its pages named by their path in the common folder. Raises InvalidFile."""
    try:
        record = RunRecord.from_json(run.run())
        readings = pa.concat_tables([run.rows(marker) for marker in markers])
    except FAULTS as error:
        raise InvalidFile(one_line(error)) from error
    shared = shared_folders(PurePosixPath(path or "").parent.parts for path in readings["path"].to_pylist())
    parts = (PurePosixPath(page).parts[shared:] for page in readings["page"].to_pylist())
    backend = pc.fill_null(readings["backend"], next(iter(record.backends), "unknown"))
    columns = {"page": pa.array([PurePosixPath(*each).as_posix() for each in parts]), "backend": backend}
    readings = readings.drop_columns(["run_id", *columns])
    for name, values in columns.items():
        readings = readings.append_column(name, values)
    place = Path(run.store.location)
    return ImportedRun(record, place, {"readings": readings, "timings": timing_rows(readings)})


# --- archives ---------------------------------------------------------------------------------------


@contextmanager
def unpacked_archive(file: Path, left_out: list[Skipped]) -> Iterator[Path]:
    """Unpack a zip into a temporary directory; files left out go to the list. Raises InvalidFile."""
    if not file.is_file():  # a pipe would be waited on for ever
        raise InvalidFile("not a regular file")
    with Temporary("import") as target:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
                if len(entries) > ENTRY_LIMIT:
                    raise InvalidFile(f"{len(entries):,} entries; at most {ENTRY_LIMIT:,} are unpacked")
                left = BYTES_LIMIT
                for entry in entries:
                    if reason := _unpacked(archive, entry, Path(target), min(FILE_BYTES, left)):
                        name = without_surrogates(entry.filename)[:4096].lstrip("/")
                        left_out.append(Skipped(file / name, reason))
                    else:
                        left -= entry.file_size
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InvalidFile(f"not a zip archive that can be unpacked ({one_line(error, 120)})") from error
        yield Path(target)


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, most: int) -> str:
    """Unpack a file of an archive; the reason where it is left out."""
    path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
    if path.is_absolute() or ".." in path.parts or not path.parts:
        return "its name leads out of the archive"
    if len(path.parts) > DEPTH_LIMIT:
        return f"deeper than {DEPTH_LIMIT} folders"
    if stat.S_IFMT(mode) and not stat.S_ISREG(mode):
        return "not a regular file"
    if entry.file_size > most:  # no more than it says is unpacked
        return f"more than {most:,} bytes"
    try:
        archive.extract(entry, target)
        moment = calendar.timegm((*entry.date_time, 0, 0, 0))
        os.utime(target / path, (moment, moment))
    except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError) as error:
        with suppress(OSError):
            (target / path).unlink()
        return f"cannot be unpacked ({error})"
    return ""

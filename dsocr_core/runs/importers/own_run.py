"""Runs of this project: directories of a history, those that `--out` names, outputs of a cluster."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.importers.imported import ImportedRun, RunFiles
from dsocr_core.runs.importers.reading import MIB, PICTURE_LIMIT
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.rows import timing_rows
from dsocr_core.runs.run_directory import RunDirectory, is_begun
from dsocr_core.runs.schema import TABLES, check_version
from dsocr_core.runs.sharded import COMPLETE, RUN, ShardedRun, readings_table
from dsocr_core.runs.storage import DOCUMENT_LIMIT

DOCUMENT = "run.json"
MOST_PAGES = 200_000
"""Pages of a cluster's output: its readings are held in memory while they are written."""
_ROW_LIMIT, _TABLE_BYTES, _FILE_LIMIT = 500_000, 512 * MIB, 100_000
_BATCH_ROWS = 64
_MADE = {DOCUMENT, CHECKSUMS, PREDICTIONS, f"vendor/{PREDICTIONS}", *(f"{name}.parquet" for name in TABLES)}
_ERRORS = (DsocrError, LookupError, TypeError, ValueError, OverflowError, OSError, pa.ArrowException)


def is_own_run(directory: Path) -> bool:
    return (directory / DOCUMENT).is_file() or is_begun(directory)


def read_own_run(run: RunFiles) -> list[ImportedRun]:
    """The run in a directory with a `run.json`.

    Unlike foreign runs it is taken whole or not at all: a run is immutable. What `SHA256SUMS` lists is held
    against it, and nothing else is part of the run. Raises InvalidFile.
    """
    directory = run.place
    if is_begun(directory):
        raise InvalidFile("not finished: dsocr run --resume goes on with it")
    try:
        document = parse_json(read_bytes(directory / DOCUMENT, DOCUMENT_LIMIT), repeats=False)
        check_version(document)
        checksums = read_checksums(directory)
        verify(directory, checksums or {}, checksums or ())
        record = RunRecord.from_json(document)
        listed = document.get("tables")
        if not isinstance(listed, dict):
            raise InvalidFile("does not say which tables it has")
        tables = {name: _table(directory, name, count, record.id) for name, count in listed.items()}
    except _ERRORS as error:
        raise InvalidFile(one_line(error, 300)) from error
    files = _other_files(run, None if checksums is None else checksums.keys())
    return [ImportedRun(record, directory, {name: rows for name, rows in tables.items() if len(rows)}, files)]


def _table(directory: Path, name: str, count: object, run_id: str) -> pa.Table:
    """A table of a run without its ids, held against the run's document. Raises InvalidFile."""
    if name not in TABLES:
        raise InvalidFile(f"there is no table '{name[:40]}'")
    file = f"{name}.parquet"
    try:
        table = _decoded(file, pq.ParquetFile(pa.BufferReader(read_bytes(directory / file, _TABLE_BYTES))))
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidFile(f"{file}: {one_line(error, 200)}") from error
    if len(table) != count:
        raise InvalidFile(f"{file} has {len(table)} rows, {DOCUMENT} says {str(count)[:20]}")
    if "run_id" not in table.column_names:
        return table
    if {*pc.unique(table["run_id"]).to_pylist()} - {run_id}:
        raise InvalidFile(f"{file} holds rows of another run")
    return table.drop_columns("run_id")


def _decoded(name: str, file: pq.ParquetFile) -> pa.Table:
    """All rows, read in small batches: a few kilobytes may stand for gigabytes. Raises InvalidFile."""
    columns, metadata = file.schema_arrow.names, file.metadata
    if len(set(columns)) < len(columns):
        raise InvalidFile(f"{name} has a column twice")
    stated = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if stated > _TABLE_BYTES or metadata.num_rows > _ROW_LIMIT:
        raise InvalidFile(f"{name} has more than {_ROW_LIMIT:,} rows or {_TABLE_BYTES:,} bytes")
    batches = []
    left = _TABLE_BYTES
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        if (left := left - batch.nbytes) < 0:
            raise InvalidFile(f"{name} holds more than {_TABLE_BYTES:,} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow)


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


def take_sharded_run(location: str, root: Path) -> str:
    """Write the run of an output into a history; its id. Raises DsocrError."""
    found = read_sharded_run(location)
    found.write(RunDirectory.create(root, found.record))
    return found.record.id


def read_sharded(run: RunFiles) -> list[ImportedRun]:
    return [read_sharded_run(str(run.place))]


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
    folders = [PurePosixPath(page.path).parent.parts for page in pages]
    same = [len({*parts}) == 1 for parts in zip(*folders, strict=False)]
    shared = [*same, False].index(False)
    names = [PurePosixPath(*PurePosixPath(page.name).parts[shared:]).as_posix() for page in pages]
    readings = readings_table([replace(page, name=name) for page, name in zip(pages, names, strict=True)])
    at = readings.schema.get_field_index("backend")
    backend = pc.fill_null(readings["backend"], next(iter(record.backends), "unknown"))
    readings = readings.set_column(at, readings.schema.field(at), backend).drop_columns("run_id")
    return ImportedRun(record, Path(location), {"readings": readings, "timings": timing_rows(readings)})

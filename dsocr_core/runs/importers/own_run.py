"""Runs of this project: directories of a history, those that `--out` names, and exported ones."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.importers.imported import ImportedRun, Skipped
from dsocr_core.runs.importers.reading import PICTURE_LIMIT, as_json, as_text
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_folder import is_begun
from dsocr_core.runs.schema import TABLES, check_version
from dsocr_core.runs.storage.entries import DOCUMENT_LIMIT

DOCUMENT = "run.json"
_ROW_LIMIT = 500_000
_TABLE_BYTES = 512 * 1024 * 1024
_BATCH_ROWS = 64
_FILE_LIMIT = 100_000


def is_own_run(directory: Path) -> bool:
    return (directory / DOCUMENT).is_file() or is_begun(directory)


def read_own_run(directory: Path) -> ImportedRun:
    """The run in a directory with a `run.json`.

    Unlike foreign runs it is taken whole or not at all: a run is immutable. What `SHA256SUMS` lists is held
    against it, and nothing else is part of the run. Raises InvalidFile.
    """
    if is_begun(directory):
        raise InvalidFile("not finished: dsocr run --resume goes on with it")
    document = as_json(as_text(read_bytes(directory / DOCUMENT, DOCUMENT_LIMIT)))
    try:
        check_version(document)
        checksums = read_checksums(directory)
        verify(directory, checksums or {}, checksums or ())
        tables = _tables(directory, document)
        record = RunRecord.from_json(document)
        # Kept under its own name, which is checked to be one.
        rows = {name: _own_rows(table, record.id) for name, table in tables.items() if len(table)}
    except (DsocrError, LookupError, TypeError, ValueError, OverflowError, OSError) as error:
        raise InvalidFile(" ".join(str(error).split())[:300]) from error
    files, skipped = _other_files(directory, None if checksums is None else checksums.keys())
    return ImportedRun(record, directory, rows, files, skipped)


def _tables(directory: Path, document: dict[str, Any]) -> dict[str, pa.Table]:
    listed = document.get("tables")
    if not isinstance(listed, dict):
        raise InvalidFile("does not say which tables it has")
    tables: dict[str, pa.Table] = {}
    for name, count in listed.items():
        if name not in TABLES:
            raise InvalidFile(f"there is no table '{name[:40]}'")
        try:
            tables[name] = _bounded(name, read_bytes(directory / f"{name}.parquet", _TABLE_BYTES))
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise InvalidFile(f"{name}.parquet: {one_line(error, 200)}") from error
        if len(tables[name]) != count:
            raise InvalidFile(
                f"{name}.parquet has {len(tables[name])} rows, {DOCUMENT} says {str(count)[:20]}"
            )
    return tables


def _bounded(name: str, content: bytes) -> pa.Table:
    """A table that may be anybody's. Raises InvalidFile."""
    file = pq.ParquetFile(pa.BufferReader(content))
    columns = file.schema_arrow.names
    if len(set(columns)) < len(columns):
        raise InvalidFile(f"{name}.parquet has a column twice")
    groups = range(file.metadata.num_row_groups)
    unpacked = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    if file.metadata.num_rows > _ROW_LIMIT or unpacked > _TABLE_BYTES:
        raise InvalidFile(f"{name}.parquet has more than {_ROW_LIMIT:,} rows or {_TABLE_BYTES:,} bytes")
    return _decoded(name, file)


def _decoded(name: str, file: pq.ParquetFile) -> pa.Table:
    """All rows, in small batches: a few kilobytes of Parquet may stand for gigabytes. Raises InvalidFile."""
    batches, size = [], 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        size += batch.nbytes
        if size > _TABLE_BYTES:
            raise InvalidFile(f"{name}.parquet holds more than {_TABLE_BYTES:,} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow)


def _own_rows(table: pa.Table, run_id: str) -> pa.Table:
    if "run_id" in table.column_names:
        kind = table.schema.field("run_id").type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InvalidFile(f"has {kind} for run_id, not texts"[:200])
        if not all(found == run_id for found in pc.unique(table["run_id"]).to_pylist()):
            raise InvalidFile("holds rows of another run")
        table = table.drop_columns("run_id")
    return table


def _other_files(
    directory: Path, listed: Collection[str] | None
) -> tuple[dict[str, bytes | Path], tuple[Skipped, ...]]:
    """Find what is listed beside the tables, by its place; without a list all but what is made of them."""
    files: dict[str, bytes | Path] = {}
    skipped: list[Skipped] = []
    tables = (f"{name}.parquet" for name in TABLES)
    made = {DOCUMENT, CHECKSUMS, PREDICTIONS, f"vendor/{PREDICTIONS}", *tables}
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            place = file.relative_to(directory).as_posix()
            if place in made or (listed is not None and place not in listed):
                continue
            if len(files) >= _FILE_LIMIT:
                skipped.append(Skipped(directory, f"has more than {_FILE_LIMIT:,} files"))
                return files, tuple(skipped)
            try:
                read_bytes(file, PICTURE_LIMIT)
                files[place] = file
            except InvalidFile as error:
                skipped.append(Skipped(file, str(error)))
    return files, tuple(skipped)

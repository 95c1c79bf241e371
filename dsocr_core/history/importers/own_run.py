"""Runs of this project: directories of a history, as `history export` puts them into a zip."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError, one_line
from dsocr_core.history.checksums import CHECKSUMS
from dsocr_core.history.importers.imported import ImportedRun, Skipped
from dsocr_core.history.importers.reading import PICTURE_LIMIT, as_json, as_text
from dsocr_core.history.record import RunRecord
from dsocr_core.history.schema import FLAT, TABLES, version_of
from dsocr_core.history.storage.entries import DOCUMENT_LIMITS
from dsocr_core.history.upgrade.migrations import Tables, migrate
from dsocr_core.outputs.artifacts import PREDICTIONS
from dsocr_core.outside.untrusted import Refused, read_bytes

DOCUMENT = "run.json"
_EARLIER = (*FLAT, "stage_timings")
"""Tables of earlier versions."""
_ROW_LIMIT = 500_000
_TABLE_BYTES = 512 * 1024 * 1024
_BATCH_ROWS = 64
_FILE_LIMIT = 100_000


def is_own_run(directory: Path) -> bool:
    return (directory / DOCUMENT).is_file()


def read_own_run(directory: Path) -> ImportedRun:
    """The run in a directory with a `run.json`, brought to the current version.

    Unlike foreign runs it is taken whole or not at all: a run is immutable. Raises Refused.
    """
    document = as_json(as_text(read_bytes(directory / DOCUMENT, DOCUMENT_LIMITS["runs"])))
    try:
        version_of(document)
        document, tables = migrate(document, _tables(directory, document))
        record = RunRecord.from_json(document)
        # Kept under its own name, which is checked to be one.
        rows = {name: _own_rows(table, record.id) for name, table in tables.items() if len(table)}
    except (DsocrError, LookupError, TypeError, ValueError, OverflowError, OSError) as error:
        raise Refused(" ".join(str(error).split())[:300]) from error
    files, skipped = _other_files(directory)
    return ImportedRun(record, directory, rows, files, skipped)


def _tables(directory: Path, document: dict[str, Any]) -> Tables:
    listed = document.get("tables")
    if not isinstance(listed, dict):
        raise Refused("does not say which tables it has")
    tables: Tables = {}
    for name, count in listed.items():
        if name not in TABLES and name not in _EARLIER:
            raise Refused(f"there is no table '{name[:40]}'")
        content = read_bytes(directory / f"{name}.parquet", _TABLE_BYTES)
        try:
            file = pq.ParquetFile(pa.BufferReader(content))
            columns = file.schema_arrow.names
            if len(set(columns)) < len(columns):
                raise Refused(f"{name}.parquet has a column twice")
            groups = range(file.metadata.num_row_groups)
            unpacked = sum(file.metadata.row_group(group).total_byte_size for group in groups)
            if file.metadata.num_rows > _ROW_LIMIT or unpacked > _TABLE_BYTES:
                raise Refused(f"{name}.parquet has more than {_ROW_LIMIT:,} rows or {_TABLE_BYTES:,} bytes")
            tables[name] = _decoded(name, file)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise Refused(f"{name}.parquet: {one_line(error, 200)}") from error
        if len(tables[name]) != count:
            raise Refused(f"{name}.parquet has {len(tables[name])} rows, {DOCUMENT} says {str(count)[:20]}")
    return tables


def _decoded(name: str, file: pq.ParquetFile) -> pa.Table:
    """All rows, read in small batches: a few kilobytes of Parquet may stand for gigabytes. Raises Refused."""
    batches, size = [], 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        size += batch.nbytes
        if size > _TABLE_BYTES:
            raise Refused(f"{name}.parquet holds more than {_TABLE_BYTES:,} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow)


def _own_rows(table: pa.Table, run_id: str) -> pa.Table:
    if "run_id" in table.column_names:
        kind = table.schema.field("run_id").type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise Refused(f"has {kind} for run_id, not texts"[:200])
        if not all(found == run_id for found in pc.unique(table["run_id"]).to_pylist()):
            raise Refused("holds rows of another run")
        table = table.drop_columns("run_id")
    return table


def _other_files(directory: Path) -> tuple[dict[str, bytes | Path], tuple[Skipped, ...]]:
    """What lies beside the tables, by its place; predictions are made anew from the tables."""
    files: dict[str, bytes | Path] = {}
    skipped: list[Skipped] = []
    made = {
        DOCUMENT,
        CHECKSUMS,
        PREDICTIONS,
        f"vendor/{PREDICTIONS}",
        *(f"{name}.parquet" for name in (*TABLES, *_EARLIER)),
    }
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            place = file.relative_to(directory).as_posix()
            if place in made:
                continue
            if len(files) >= _FILE_LIMIT:
                skipped.append(Skipped(directory, f"has more than {_FILE_LIMIT:,} files"))
                return files, tuple(skipped)
            try:
                read_bytes(file, PICTURE_LIMIT)
                files[place] = file
            except Refused as error:
                skipped.append(Skipped(file, str(error)))
    return files, tuple(skipped)

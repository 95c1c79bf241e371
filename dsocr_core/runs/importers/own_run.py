"""Runs of this project: directories of a history, those that `--out` names, and exported ones."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.importers.imported import ImportedRun, Skipped
from dsocr_core.runs.importers.reading import MIB, PICTURE_LIMIT, as_json, as_text
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import is_begun
from dsocr_core.runs.schema import TABLES, check_version
from dsocr_core.runs.storage import DOCUMENT_LIMIT

DOCUMENT = "run.json"
_ROW_LIMIT, _TABLE_BYTES, _FILE_LIMIT = 500_000, 512 * MIB, 100_000
_BATCH_ROWS = 64
_ERRORS = (DsocrError, LookupError, TypeError, ValueError, OverflowError, OSError)


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
        record = RunRecord.from_json(document)
        listed = document.get("tables")
        if not isinstance(listed, dict):
            raise InvalidFile("does not say which tables it has")
        tables = {name: _table(directory, name, count, record.id) for name, count in listed.items()}
    except _ERRORS as error:
        raise InvalidFile(" ".join(str(error).split())[:300]) from error
    files, skipped = _other_files(directory, None if checksums is None else checksums.keys())
    return ImportedRun(
        record, directory, {name: rows for name, rows in tables.items() if len(rows)}, files, skipped
    )


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
    kind = table.schema.field("run_id").type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InvalidFile(f"{file} has {kind} for run_id, not texts"[:200])
    if set(pc.unique(table["run_id"]).to_pylist()) - {run_id}:
        raise InvalidFile(f"{file} holds rows of another run")
    return table.drop_columns("run_id")


def _decoded(name: str, file: pq.ParquetFile) -> pa.Table:
    """All rows, read in small batches: a few kilobytes may stand for gigabytes. Raises InvalidFile."""
    columns, metadata = file.schema_arrow.names, file.metadata
    if len(set(columns)) < len(columns):
        raise InvalidFile(f"{name} has a column twice")
    batches = []
    left = _TABLE_BYTES - sum(
        metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
    )
    if left < 0 or metadata.num_rows > _ROW_LIMIT:
        raise InvalidFile(f"{name} has more than {_ROW_LIMIT:,} rows or {_TABLE_BYTES:,} bytes")
    left = _TABLE_BYTES
    for batch in file.iter_batches(batch_size=_BATCH_ROWS):
        if (left := left - batch.nbytes) < 0:
            raise InvalidFile(f"{name} holds more than {_TABLE_BYTES:,} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow)


def _other_files(
    directory: Path, listed: Collection[str] | None
) -> tuple[dict[str, bytes | Path], tuple[Skipped, ...]]:
    """Files that are listed, but for the tables, by place; without a list all but what is made of them."""
    files: dict[str, bytes | Path] = {}
    skipped: list[Skipped] = []
    made = {
        DOCUMENT,
        CHECKSUMS,
        PREDICTIONS,
        f"vendor/{PREDICTIONS}",
        *(f"{name}.parquet" for name in TABLES),
    }
    found = sorted(Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
    for file in found:
        place = file.relative_to(directory).as_posix()
        if place in made or (listed is not None and place not in listed):
            continue
        try:
            if len(files) >= _FILE_LIMIT:
                raise InvalidFile(f"the run has more than {_FILE_LIMIT:,} files")
            read_bytes(file, PICTURE_LIMIT)
            files[place] = file
        except InvalidFile as error:
            skipped.append(Skipped(file, str(error)))
    return files, tuple(skipped)

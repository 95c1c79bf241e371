"""A run as the index takes it in: its files held against their checksums once, its record parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.runs.checksums import CHECKSUMS, Damaged, read_checksums, verify
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.record import RecordError, RunRecord, read_document
from dsocr_core.runs.schema import TABLES, check_version
from dsocr_core.runs.storage.entries import UNLISTED, Storage


@dataclass(frozen=True)
class Taken:
    """A run without damage."""

    record: RunRecord
    rows: Mapping[str, int]
    """Number of rows it has in each of its tables."""
    document: str
    """Its `run.json`."""
    storage: int
    """Number of the storage that it lies in."""
    version: str
    """Another text when one of its files is another."""
    directory: Path
    parity_rule: int
    """The rule that judged its pages; 0 of a run that does not say."""


def take(storage: Storage, number: int, name: str, version: str) -> Taken | None:
    """Read a run; None while it has no document and no list of checksums: it is being copied.

    Raises Damaged or another DsocrError, which names the file; EntryGone.
    """
    if version.startswith(UNLISTED):
        raise DsocrError(version)
    content = storage.document(name)
    if content is None:
        if (storage.directory(name) / CHECKSUMS).exists():
            raise Damaged("run.json", "missing")
        return None
    try:
        document = read_document(content)
        check_version(document)
        record, rows = RunRecord.from_json(document), _rows(document)
        if record.id != name:
            raise RecordError(f"it says it is run {record.id}")
    except DsocrError as error:
        raise Damaged("run.json", str(error)) from error
    names = ["run.json", *(f"{table}.parquet" for table in rows)]
    directory = verified(storage, name, names)
    rule = document.get("parity_rule")
    return Taken(
        record, rows, content.decode(), number, version, directory, rule if isinstance(rule, int) else 0
    )


def _rows(document: Mapping[str, object]) -> dict[str, int]:
    tables = document.get("tables")
    if not isinstance(tables, dict) or not all(isinstance(rows, int) for rows in tables.values()):
        raise RecordError("it does not say which tables the run has")
    return {table: count for table, count in tables.items() if table in TABLES}


def verified(storage: Storage, name: str, files: Iterable[str]) -> Path:
    """Hold files of a run against its checksums; returns its directory. Raises Damaged, EntryGone."""
    directory = storage.directory(name)
    try:
        checksums = read_checksums(directory)
        if checksums is None:
            raise Damaged(CHECKSUMS, "missing")
        verify(directory, checksums, files)
    except Damaged:
        storage.directory(name)  # raises EntryGone where the run was removed meanwhile
        raise
    return directory


def unreadable(runs: Iterable[Taken], table: str) -> dict[str, str]:
    """By id, the runs whose file of a table is as it was written and no table of this version."""
    found = {}
    for run in runs:
        file = run.directory / f"{table}.parquet"
        try:
            if not pq.read_schema(file).equals(TABLES[table]):
                found[run.record.id] = f"{file.name}: does not have the columns of this version"
            elif len(read_rows(file)) != run.rows[table]:
                found[run.record.id] = f"{file.name}: does not have the rows that its document says"
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            found[run.record.id] = f"{file.name}: cannot be read ({one_line(error, 200)})"
    return found

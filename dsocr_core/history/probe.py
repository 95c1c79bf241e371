"""Entries without checksums, read by the reader that answers questions: what it cannot read is damaged.

Runs of versions of the program that wrote no checksums. A damage that still decodes is not found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.history.schema import TABLES

_FILES_AT_ONCE = 100
_MEMORY = "2GB"
_COUNT = """
SELECT filename, run_id, count(*) AS rows, bit_xor(hash(COLUMNS(* EXCLUDE (filename, run_id))))
FROM read_parquet($files, filename = true) GROUP BY filename, run_id
"""
"""The hashes make it decode every value; they are not looked at."""


@dataclass(frozen=True)
class TableFile:
    """A table of an entry, and how many rows its document says each run has in it."""

    file: Path
    table: str
    rows: dict[str, int]
    current: bool
    """Whether its columns are those of this version."""


def unreadable(files: Sequence[TableFile]) -> dict[Path, str]:
    """Which files are not what their entries say, with the reason."""
    found: dict[Path, str] = {}
    batches = deque(_batches(files))
    while batches:
        # One database until an error, which may leave it unusable: making one takes longer than most batches.
        with _database() as database:
            while batches and _all_well(batches[0], database):
                batches.popleft()
        if batches:
            doubtful = batches.popleft()
            found |= {each.file: reason for each in doubtful if (reason := why_unreadable(each))}
    return found


def why_unreadable(given: TableFile) -> str | None:
    """What is wrong with a file, read on its own; None when nothing is."""
    if not given.file.is_file():
        return "missing"
    try:
        if given.current and not pq.read_schema(given.file).equals(TABLES[given.table]):
            return "does not have the columns of this version"
        with _database() as database:
            found = _counts([given], database).get(given.file, {})
    except (duckdb.Error, pa.ArrowException, OSError, ValueError, MemoryError) as error:
        return f"cannot be read ({' '.join(str(error).split())[:200]})"
    # Of a pack only some runs may be wanted; a run's own directory holds nobody else's rows.
    if any(found.get(run_id, 0) != rows for run_id, rows in given.rows.items()):
        return "does not have the rows that its document says"
    return None


def _all_well(batch: Sequence[TableFile], database: duckdb.DuckDBPyConnection) -> bool:
    if not all(each.file.is_file() for each in batch):
        return False
    try:
        if not all(pq.read_schema(each.file).equals(TABLES[each.table]) for each in batch if each.current):
            return False
        counts = _counts(batch, database)
    except (duckdb.Error, pa.ArrowException, OSError, ValueError, MemoryError):
        return False
    return all(
        counts.get(each.file, {}).get(run_id, 0) == rows
        for each in batch
        for run_id, rows in each.rows.items()
    )


def _batches(files: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    """Files with the same columns, so many at a time."""
    alike: dict[tuple[str, bool], list[TableFile]] = {}
    for each in files:
        alike.setdefault((each.table, each.current), []).append(each)
    for group in alike.values():
        for start in range(0, len(group), _FILES_AT_ONCE):
            yield group[start : start + _FILES_AT_ONCE]


def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"memory_limit": _MEMORY, "threads": 1})


def _counts(files: Sequence[TableFile], database: duckdb.DuckDBPyConnection) -> dict[Path, dict[str, int]]:
    """Rows of each run in each file."""
    answer = database.execute(_COUNT, {"files": [str(each.file) for each in files]}).fetchall()
    counts: dict[Path, dict[str, int]] = {}
    for filename, run_id, rows, *_ in answer:
        counts.setdefault(Path(filename), {})[run_id] = rows
    return counts

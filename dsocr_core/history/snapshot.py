"""A copy of the history for one statement of a person: a database that can only be read.

DuckDB itself refuses what would write: the copy is attached read-only, no file can be reached, and the
configuration is locked. What a statement names is copied: a file that may be read could be written, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pandas as pd

from dsocr_core.history.database import HELD_IN_PARTS, TOTALS, VIEWS
from dsocr_core.history.queries.query import literal

_LOCKS = (
    "SET enable_progress_bar = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Snapshot:
    """What the history held at a moment, for statements of people; safe to ask from any thread."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, file: Path, tables: Mapping[str, Sequence[str]], times: bool
    ) -> None:
        """Copies what `cursor` sees, and the rows of the Parquet files of `tables`; with all times or none.

        `file` is a name for the copy's database, which has no name any more afterwards. Raises duckdb.Error.
        """
        try:
            _copy(cursor, file, tables, times)
            self._connection = duckdb.connect(str(file), read_only=True)
        finally:
            file.unlink(missing_ok=True)
        for lock in _LOCKS:
            self._connection.execute(lock)

    def ask(self, statement: str) -> pd.DataFrame:
        """The answer. Raises duckdb.Error."""
        with contextlib.closing(self._connection.cursor()) as cursor:
            frame: pd.DataFrame = cursor.execute(statement).df()
            return frame


def _copy(
    cursor: duckdb.DuckDBPyConnection, file: Path, tables: Mapping[str, Sequence[str]], times: bool
) -> None:
    name = file.stem
    cursor.execute(f"ATTACH {literal(str(file))} AS {name}")
    try:
        cursor.execute("BEGIN")
        for table in (*TOTALS, *HELD_IN_PARTS):
            none = "" if times or table in TOTALS else " LIMIT 0"
            cursor.execute(f"CREATE TABLE {name}.{table} AS FROM memory.{table}{none}")
        for table, files in tables.items():
            cursor.execute(f"CREATE TABLE {name}.{table} AS FROM read_parquet({literal(list(files))})")
        cursor.execute(f"USE {name}")
        cursor.execute(VIEWS)
        cursor.execute("COMMIT")
    finally:
        cursor.execute("USE memory")
        cursor.execute(f"DETACH {name}")

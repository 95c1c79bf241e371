"""A copy of the history for one statement of a person: a database that can only be read.

DuckDB itself refuses what would write: the copy is attached read-only, no file can be reached, and the
configuration is locked. What a statement names is copied: a file that may be read could be written, too.
A statement has a limit of time and of memory: one short line can ask for more than any machine has.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd

from dsocr_core.errors import DsocrError
from dsocr_core.history.database import HELD_IN_PARTS, TOTALS, VIEWS
from dsocr_core.history.queries.query import literal
from dsocr_core.history.schema import relation

_LOCKS = (
    "SET enable_progress_bar = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


_MOST_VECTORS = 64
"""Of 2,048 rows: at most so much of an answer is taken between two looks at its size."""
_GRACE_S, _TRIES = 5.0, 100
"""For a function that DuckDB cannot interrupt; then its thread is left behind."""


class OverLimit(DsocrError):
    """A statement that takes more than it may; the text says which limit."""


@dataclass(frozen=True)
class Limits:
    """What a statement may take.

    Args:
        seconds: until its answer is there
        mebibytes: of memory for the database's work, and as much for the answer
    """

    seconds: float = 60.0
    mebibytes: int = 1024


class Snapshot:
    """What the history held at a moment, for statements of people; safe to ask from any thread."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        file: Path,
        tables: Mapping[str, Sequence[str]],
        times: bool,
        mebibytes: int = Limits.mebibytes,
    ) -> None:
        """Copies what `cursor` sees, and the rows of the Parquet files of `tables`; with all times or none.

        `file` is a name for the copy's database, which has no name any more afterwards. Its work is done in
        `mebibytes` of memory and no file. Raises duckdb.Error.
        """
        self.mebibytes = mebibytes
        memory: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{mebibytes}MiB",
            "temp_directory": "",
        }
        try:
            _copy(cursor, file, tables, times)
            self._connection = duckdb.connect(str(file), read_only=True, config=memory)
        finally:
            file.unlink(missing_ok=True)
        for lock in _LOCKS:
            self._connection.execute(lock)

    def ask(self, statement: str, limits: Limits = Limits()) -> pd.DataFrame:
        """The answer. Raises duckdb.Error and OverLimit; on Ctrl-C the statement is stopped."""
        cursor = self._connection.cursor()
        work = _Work(cursor, statement, limits.mebibytes * 2**20)
        # Of its own thread: Ctrl-C reaches this one while DuckDB works in that one.
        thread = threading.Thread(target=work.run, name="history sql", daemon=True)
        thread.start()
        try:
            thread.join(limits.seconds)
            late = thread.is_alive()
        finally:
            # Again and again: an interrupt before the statement has begun is lost.
            tries = _TRIES
            while thread.is_alive() and tries:
                cursor.interrupt()
                thread.join(_GRACE_S / _TRIES)
                tries -= 1
        if late:
            raise OverLimit(f"no answer in {limits.seconds:g} s, the time limit of a statement")
        return work.answer()


class _Work:
    """One statement at work: its answer, piece by piece, or why there is none."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, statement: str, most_bytes: int) -> None:
        self._cursor, self._statement, self._most_bytes = cursor, statement, most_bytes
        self._frame: pd.DataFrame | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            with contextlib.closing(self._cursor):
                self._frame = self._taken(self._cursor.execute(self._statement))
        except (duckdb.OutOfMemoryException, MemoryError):
            self._error = OverLimit(f"it takes more than {self._most_bytes >> 20:,} MiB, the memory limit")
        except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
            self._error = error

    def answer(self) -> pd.DataFrame:
        """Raises what the statement raised."""
        if self._error is not None:
            raise self._error
        assert self._frame is not None
        return self._frame

    def _taken(self, result: duckdb.DuckDBPyConnection) -> pd.DataFrame:
        pieces: list[pd.DataFrame] = []
        taken, vectors = 0, 1
        while len(piece := result.fetch_df_chunk(vectors)) or not pieces:
            pieces.append(piece)
            its_bytes = int(piece.memory_usage(deep=True).sum())
            taken += its_bytes
            # Rows may be long: the next piece is about a sixteenth of what there may be.
            vectors = max(1, min(_MOST_VECTORS, vectors * self._most_bytes // (16 * its_bytes + 1)))
            if taken > self._most_bytes:
                raise OverLimit(
                    f"its answer takes more than {self._most_bytes >> 20:,} MiB, the memory limit: "
                    "ask for fewer rows (LIMIT) or for sums"
                )
        return pieces[0] if len(pieces) == 1 else _joined(pieces)


def _joined(pieces: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The pieces of an answer, with the types that it has as a whole."""
    whole = pd.concat(pieces, ignore_index=True)
    for at in range(whole.shape[1]):
        types = [piece.dtypes.iloc[at] for piece in pieces]
        texts = [each for each in types if isinstance(each, pd.StringDtype)]
        # A piece of nulls alone does not say that they are texts.
        if texts and whole.dtypes.iloc[at] != texts[0]:
            whole.isetitem(at, whole.iloc[:, at].astype(texts[0]))
    return whole


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
            rows = f"read_parquet({literal(list(files))})"
            cursor.execute(f"CREATE TABLE {name}.{table} AS FROM {relation(table, rows)}")
        cursor.execute(f"USE {name}")
        cursor.execute(VIEWS)
        cursor.execute("COMMIT")
    finally:
        cursor.execute("USE memory")
        cursor.execute(f"DETACH {name}")

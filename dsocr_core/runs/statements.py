"""A statement of a person: asked of the index, which can only be read, within limits, answered in pieces.

DuckDB itself refuses what would write: the index is attached read-only, the transaction is read-only, no
file can be reached, and the configuration is locked. Tables that are not in the index are handed to it row
group by row group. One short line can ask for more than any machine has: its time, its memory and the size
of its answer have limits, also while the answer is written.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pandas as pd

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.uses import Closed, Uses

_LOCKS = (
    "SET enable_progress_bar = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
    "SET search_path = 'memory.main,ix.main'",
    "BEGIN TRANSACTION READ ONLY",
)
_MOST_VECTORS = 64
"""Vectors of 2,048 rows: at most so much of an answer is taken between two looks at its size."""
_GRACE_S, _TRIES = 5.0, 100
"""For a function that DuckDB cannot interrupt; then its thread is left behind."""


class OverLimit(DsocrError):
    """A statement that takes more than it may; the text says which limit."""


@dataclass(frozen=True)
class Limits:
    """Limits of a statement.

    Args:
        seconds: until its answer is there, and written
        mebibytes: of memory for the database's work, and as much for the answer
    """

    seconds: float = 60.0
    mebibytes: int = 1024


def ask(
    connect: Callable[[duckdb.DuckDBPyConnection], None], statement: str, limits: Limits, uses: Uses
) -> Iterator[pd.DataFrame]:
    """The answer in pieces, each taken when the one before is done with; the first gives the columns.

    `connect` attaches the index and registers tables. Raises duckdb.Error, OverLimit and Closed; when the
    iterator or the owner of `uses` is closed, on Ctrl-C too, the statement is stopped.
    """
    most = limits.mebibytes * 2**20
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limits.mebibytes}MiB", "temp_directory": ""
    }  # fmt: skip
    connection = duckdb.connect(":memory:", config=config)
    try:
        with uses.use(connection.interrupt):
            connect(connection)
            for lock in _LOCKS:
                connection.execute(lock)
        work = _Work(connection, statement, most, uses)
        until = time.monotonic() + limits.seconds
        try:
            yield from work.pieces(until, limits)
        finally:
            work.stop()
    except (duckdb.OutOfMemoryException, MemoryError):
        raise OverLimit(f"it takes more than {limits.mebibytes:,} MiB, the memory limit") from None
    finally:
        with contextlib.suppress(duckdb.Error):  # busy for ever: it ends with its thread
            connection.close()


class _Work:
    """One statement at work, in a thread of its own: Ctrl-C reaches the asking one while DuckDB works."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, statement: str, most_bytes: int, uses: Uses
    ) -> None:
        self._connection, self._statement, self._most_bytes = connection, statement, most_bytes
        self._uses = uses
        self._made: queue.Queue[pd.DataFrame | Exception | None] = queue.Queue(1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history sql", daemon=True)
        self._thread.start()

    def pieces(self, until: float, limits: Limits) -> Iterator[pd.DataFrame]:
        taken = 0
        while True:
            try:
                piece = self._made.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                raise OverLimit(f"no answer in {limits.seconds:g} s, the time limit of a statement") from None
            if self._stopped.is_set():
                raise duckdb.InterruptException("the statement was stopped")
            if piece is None:
                return
            if time.monotonic() > until:
                raise OverLimit(f"no answer in {limits.seconds:g} s, the time limit of a statement")
            if isinstance(piece, Exception):
                raise piece
            taken += int(piece.memory_usage(deep=True).sum())
            if taken > self._most_bytes:
                raise OverLimit(
                    f"its answer takes more than {limits.mebibytes:,} MiB, the memory limit: "
                    "ask for fewer rows (LIMIT) or for sums"
                )
            yield piece

    def stop(self) -> None:
        """Again and again: an interrupt before the statement has begun is lost."""
        tries = _TRIES
        while self._thread.is_alive() and tries:
            self._interrupt()
            self._thread.join(_GRACE_S / _TRIES)
            tries -= 1

    def _interrupt(self) -> None:
        self._stopped.set()
        with contextlib.suppress(queue.Empty):
            self._made.get_nowait()  # the statement may wait for room
        with contextlib.suppress(duckdb.Error):  # closed by now
            self._connection.interrupt()

    def _run(self) -> None:
        try:
            with self._uses.use(self._interrupt):
                self._answer()
        except Closed as error:
            self._made.put(error)

    def _answer(self) -> None:
        try:
            result = self._connection.execute(self._statement)
            vectors, first = 1, True
            while not self._stopped.is_set() and (len(piece := result.fetch_df_chunk(vectors)) or first):
                self._made.put(piece)
                first = False
                # Rows may be long: the next piece is about a sixteenth of what there may be.
                its_bytes = int(piece.memory_usage(deep=True).sum())
                vectors = max(1, min(_MOST_VECTORS, vectors * self._most_bytes // (16 * its_bytes + 1)))
            self._made.put(None)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
            self._made.put(error)


def joined(pieces: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The pieces of an answer, with the types that it has as a whole."""
    if len(pieces) == 1:
        return pieces[0]
    whole = pd.concat(pieces, ignore_index=True)
    for at in range(whole.shape[1]):
        types = [piece.dtypes.iloc[at] for piece in pieces]
        texts = [each for each in types if isinstance(each, pd.StringDtype)]
        # A piece of nulls alone does not say that they are texts.
        if texts and whole.dtypes.iloc[at] != texts[0]:
            whole.isetitem(at, whole.iloc[:, at].astype(texts[0]))
    return whole


def select_only(statement: str) -> str | None:
    """Why a statement of a person is not run; None when it is one SELECT, or the explanation of one.

    What a SELECT itself may not do, the database refuses (`snapshot`).
    """
    try:
        statement.encode()
        statements = duckdb.extract_statements(statement)
        kinds = [each.type for each in statements]
        if kinds == [duckdb.StatementType.EXPLAIN]:
            # EXPLAIN ANALYZE runs what it explains.
            kinds = [each.type for each in duckdb.extract_statements(_EXPLAIN.sub("", statement, count=1))]
    except (duckdb.Error, UnicodeEncodeError) as error:
        return f"SQL: {one_line(error, 500)}"
    except ValueError:  # a kind for which DuckDB's Python package has no name
        return _NO_SELECT
    if len(statements) != 1:
        return "SQL: give one statement"
    return None if kinds == [duckdb.StatementType.SELECT] else _NO_SELECT


_NO_SELECT = "SQL: only SELECT can be run here; the history is changed by its own commands"

_EXPLAIN = re.compile(r"\s*EXPLAIN\s*(\([^()]*\)|(ANALYZE\b)?)", re.IGNORECASE)

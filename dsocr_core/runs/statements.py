"""A statement of a person: asked of the history's file, which can only be read, within limits.

DuckDB itself refuses what would write: the file is attached read-only, the transaction is read-only, no
other file can be reached, and the configuration is locked. One short line can ask for more than any machine
has: its time, its memory and the size of its answer have limits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import duckdb
import pandas as pd

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.uses import Uses

_LOCKS = (
    "SET enable_progress_bar = false", "SET python_enable_replacements = false",
    "SET enable_external_access = false", "SET lock_configuration = true", "BEGIN TRANSACTION READ ONLY",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits of a statement: seconds until its answer is there, and memory for the database's work."""

    seconds: float = 60.0
    mebibytes: int = 1024


def answer(
    connect: Callable[[duckdb.DuckDBPyConnection], None], statement: str, limits: Limits, uses: Uses
) -> pd.DataFrame:
    """The answer. `connect` attaches the file and makes tables. Raises duckdb.Error, DsocrError, Closed."""
    memory = {"memory_limit": f"{limits.mebibytes}MiB", "temp_directory": ""}
    connection, asked = duckdb.connect(":memory:", config={**memory}), Uses("the statement")

    def ask() -> pd.DataFrame:
        with asked.use(connection.interrupt):
            # As a table its answer lies within the memory limit before anything of it is taken out.
            connection.execute(f"CREATE TEMP TABLE answer AS {statement}")
            return connection.execute("FROM answer").df()

    with contextlib.closing(connection), uses.use(connection.interrupt):
        connect(connection)
        for lock in _LOCKS:
            connection.execute(lock)
        # By another thread, as DuckDB swallows Ctrl-C in the main one.
        with ThreadPoolExecutor(1, "history sql") as thread:
            try:
                return thread.submit(ask).result(limits.seconds)
            except TimeoutError:
                late = f"SQL: no answer in {limits.seconds:g} s, the time limit of a statement"
                raise DsocrError(late) from None
            except (duckdb.OutOfMemoryException, MemoryError):
                limit = f"SQL: it takes more than {limits.mebibytes:,} MiB, the memory limit"
                raise DsocrError(f"{limit}: ask for fewer rows (LIMIT) or for sums") from None
            finally:
                asked.end()


def select_only(statement: str) -> str | None:
    """Why a statement of a person is not run; None when it is one SELECT."""
    kinds = []
    with contextlib.suppress(ValueError):  # a kind for which DuckDB's Python package has no name
        try:
            statement.encode()
            kinds = [each.type for each in duckdb.extract_statements(statement)]
        except (duckdb.Error, UnicodeEncodeError) as error:
            return f"SQL: {one_line(error, 500)}"
    if kinds == [duckdb.StatementType.SELECT]:
        return None
    return "SQL: only one SELECT can be run here; the history is changed by its own commands"

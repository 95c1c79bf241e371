"""Nsight Systems' own database (`nsys export --type sqlite`): stages, and kernels, each under its stage.

A kernel belongs to the innermost stage whose NVTX range was open on the thread that launched it. A stage
takes from the first start to the last end of what its range had the device do, graphs and copies too: the
host only queues it. The file is a stranger's: it is opened without writing, its schema is not trusted, and
what takes too long is ended.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.imported import ImportedRun, content_id
from dsocr_core.runs.importers.launches import Launches, stage_of_range
from dsocr_core.runs.importers.nsys import BACKEND
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE, Head, clean, file_digest, file_time
from dsocr_core.runs.record import RunRecord

MAGIC = b"SQLite format 3\0"
FILE_LIMIT = 8 * 1024**3
SECONDS = 120.0
RANGE_LIMIT, KERNEL_LIMIT = 1_000_000, 5_000_000
_KERNELS, _RANGES, _CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
_OTHER_WORK = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("GRAPH_TRACE", "MEMCPY", "MEMSET"))
_NAME_LIMIT = 4_000
_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the clock."""
_THREAD = (1 << 24) - 1
"""The bits of a thread in nsys' number of a thread; the others say the process."""


def is_database(head: Head) -> bool:
    return head.start.startswith(MAGIC)


def read_database(file: Path) -> list[ImportedRun]:
    """The kernels and stages of an export as a run. Raises InvalidFile."""
    size = file.stat().st_size
    if size > FILE_LIMIT:
        raise InvalidFile(f"{size:,} bytes; at most {FILE_LIMIT:,} are read: profile fewer pages")
    try:
        with closing(_opened(file)) as database:
            found = Launches()
            _take_ranges(database, found)
            _take_kernels(database, found)
            gpu = _gpu(database)
    except sqlite3.OperationalError as error:
        why = f"takes more than {SECONDS:g} s" if "interrupted" in str(error) else clean(str(error))[:200]
        raise InvalidFile(f"not an export of Nsight Systems that is read ({why})") from error
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise InvalidFile(f"a damaged database ({clean(str(error))[:200]})") from error
    rows = found.tables(BACKEND, found.threads)
    if not rows:
        raise InvalidFile("no kernels and no range of a stage; profile with: nsys profile --trace=cuda,nvtx")
    record = RunRecord(
        id=content_id("nsys", {"export.sqlite": file_digest(file)}),
        created=file_time(file),
        source="nsys",
        backends=(BACKEND,) if "timings" in rows else (),
        gpu=gpu,
        profiled=True,
        notes=f"Nsight Systems, database {clean(file.name)[:200]}. {FILE_TIME_NOTE}",
    )
    return [ImportedRun(record, file, rows)]


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
    until = time.monotonic() + SECONDS
    database.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    database.text_factory = lambda content: content.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA cell_size_check=ON")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables & {_KERNELS, _RANGES}:
        raise InvalidFile("a database that is no export of Nsight Systems, or one without kernels and ranges")
    return database


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table, none where it is not there; a view of its name is none."""
    real = database.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")} if real else set()


def _take_ranges(database: sqlite3.Connection, found: Launches) -> None:
    columns = _columns(database, _RANGES)
    if not {"start", "end", "globalTid"} <= columns:
        return
    text, number = (name if name in columns else "NULL" for name in ("text", "textId"))
    rows = database.execute(
        f'SELECT globalTid, start, "end", {text}, {number} FROM {_RANGES} '
        'WHERE "end" IS NOT NULL AND globalTid IS NOT NULL'
    )
    named, count = _Names(database), 0
    for thread, start, end, name, at in rows:
        if (stage := stage_of_range(named.of(at if name is None else name)[:200])) is not None:
            count += 1
            if count > RANGE_LIMIT:
                raise InvalidFile(f"more than {RANGE_LIMIT:,} ranges of stages")
            found.add_range(thread, int(start), int(end), stage)


class _Names:
    """Texts of an export, which stand in a row or, by their number, among the strings."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._known: dict[object, str] = {}
        self._are_there = {"id", "value"} <= _columns(database, "StringIds")

    def of(self, value: object) -> str:
        """Empty for what is not there."""
        if isinstance(value, str):
            return value
        if value not in self._known:
            row = None
            if self._are_there and value is not None:
                row = self._database.execute("SELECT value FROM StringIds WHERE id = ?", (value,)).fetchone()
            self._known[value] = str(row[0])[:_NAME_LIMIT] if row else ""
        return self._known[value]


def _take_kernels(database: sqlite3.Connection, found: Launches) -> None:
    columns = _columns(database, _KERNELS)
    name = next((f"work.{name}" for name in ("demangledName", "shortName") if name in columns), "NULL")
    named = _Names(database)
    for called, start, end, thread, moment in _work(database, _KERNELS, name):
        stage = found.add_work(thread, moment, start, end)
        found.add_kernel(named.of(called)[:_NAME_LIMIT] or "not known", end - start, stage)
    for table in _OTHER_WORK:
        for _, start, end, thread, moment in _work(database, table, "NULL"):
            found.add_work(thread, moment, start, end)


def _work(database: sqlite3.Connection, table: str, name: str) -> Iterator[tuple[Any, int, int, Any, Any]]:
    """Name, start and end of what a device did; thread and moment of its launch, None where not known."""
    columns = _columns(database, table)
    if not {"start", "end"} <= columns:
        return
    launched, by = "NULL, NULL", ""
    if {"correlationId", "globalTid", "start"} <= _columns(database, _CALLS) and "correlationId" in columns:
        launched = "call.globalTid, call.start"
        process = f"globalTid & ~{_THREAD}"
        same = "AND call.process = work.globalPid" if "globalPid" in columns else ""
        # A launch may stand twice, as a call of the runtime and of the driver.
        by = (
            f"LEFT JOIN (SELECT correlationId, {process} AS process, globalTid, MIN(start) AS start FROM "
            f"{_CALLS} "
            f"GROUP BY correlationId, {process if same else 'NULL'}) AS call "
            f"ON call.correlationId = work.correlationId {same}"
        )
    rows = database.execute(f'SELECT {name}, work.start, work."end", {launched} FROM {table} AS work {by}')
    for count, row in enumerate(rows):
        if count >= KERNEL_LIMIT:
            raise InvalidFile(f"more than {KERNEL_LIMIT:,} kernels or copies: profile fewer pages")
        if not (isinstance(row[1], int) and isinstance(row[2], int) and row[1] <= row[2]):
            raise ValueError("a kernel without times, or that ended before it began")
        yield row


def _gpu(database: sqlite3.Connection) -> str | None:
    """The one GPU of the machine; None where there are several, or none is named."""
    if "name" not in _columns(database, "TARGET_INFO_GPU"):
        return None
    names = {str(name)[:200] for (name,) in database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 64")}
    return names.pop() if len(names) == 1 else None

"""Nsight Systems' own database (`nsys export --type sqlite`): stages, and kernels, each under its stage.

A kernel belongs to the innermost stage whose NVTX range was open on the thread that launched it. The file is
a stranger's: it is opened without writing, its schema is not trusted, and what takes too long is ended.
"""

from __future__ import annotations

import math
import sqlite3
import statistics
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from dsocr_core.history.importers.imported import ImportedRun, Row, content_id
from dsocr_core.history.importers.nsys import BACKEND, kernel_rows, stage_of_range, summed, timing_rows
from dsocr_core.history.importers.reading import FILE_TIME_NOTE, Head, clean, file_digest, file_time
from dsocr_core.history.record import RunRecord
from dsocr_core.outside.untrusted import Refused
from dsocr_core.stages import Stage

MAGIC = b"SQLite format 3\0"
FILE_LIMIT = 8 * 1024**3
SECONDS = 120.0
RANGE_LIMIT, KERNEL_LIMIT = 1_000_000, 5_000_000
_KERNELS, _RANGES, _CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
_NAME_LIMIT = 4_000
_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the clock."""
_THREAD = (1 << 24) - 1
"""The bits of a thread in nsys' number of a thread; the others say the process."""
_OPEN_AT_ONCE = 64
"""Ranges of stages that may be open in one another."""

_Range = tuple[int, int, Stage]


def is_database(head: Head) -> bool:
    return head.start.startswith(MAGIC)


def read_database(file: Path) -> list[ImportedRun]:
    """The kernels and stages of an export as a run. Raises Refused."""
    size = file.stat().st_size
    if size > FILE_LIMIT:
        raise Refused(f"{size:,} bytes; at most {FILE_LIMIT:,} are read: profile fewer pages")
    try:
        with closing(_opened(file)) as database:
            ranges = _ranges(database)
            times = _kernel_times(database, ranges)
            gpu = _gpu(database)
    except sqlite3.OperationalError as error:
        why = f"takes more than {SECONDS:g} s" if "interrupted" in str(error) else clean(str(error))[:200]
        raise Refused(f"not an export of Nsight Systems that is read ({why})") from error
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise Refused(f"a damaged database ({clean(str(error))[:200]})") from error
    rows: dict[str, tuple[Row, ...]] = {}
    for stage, of_stage in times.items():
        rows["kernels"] = (*rows.get("kernels", ()), *kernel_rows(summed(of_stage), stage))
    if timings := _stage_rows(ranges):
        rows["timings"] = timings
    if not rows:
        raise Refused("no kernels and no range of a stage; profile with: nsys profile --trace=cuda,nvtx")
    record = RunRecord(
        id=content_id("nsys", {"export.sqlite": file_digest(file)}),
        created=file_time(file),
        source="nsys",
        backends=(BACKEND,) if timings else (),
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
        raise Refused("a database that is no export of Nsight Systems, or one without kernels and ranges")
    return database


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table, none where it is not there; a view of its name is none."""
    real = database.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")} if real else set()


def _ranges(database: sqlite3.Connection) -> dict[int, list[_Range]]:
    """Ranges of stages by thread, each with its begin and end in ns, in the order of their begins."""
    columns = _columns(database, _RANGES)
    if not {"start", "end", "globalTid"} <= columns:
        return {}
    found: dict[int, list[_Range]] = {}
    plain, number = (
        ("event.text" if "text" in columns else "NULL"),
        "event.textId" if "textId" in columns else "NULL",
    )
    rows = database.execute(
        f'SELECT event.globalTid, event.start, event."end", {plain}, {number} FROM {_RANGES} AS event '
        'WHERE event."end" IS NOT NULL AND event.globalTid IS NOT NULL ORDER BY event.start, event."end" DESC'
    )
    named = _Names(database)
    count = 0
    for thread, start, end, text, at in rows:
        if (stage := stage_of_range(named.of(at if text is None else text)[:200])) is not None:
            count += 1
            if count > RANGE_LIMIT:
                raise Refused(f"more than {RANGE_LIMIT:,} ranges of stages")
            found.setdefault(int(thread), []).append((int(start), int(end), stage))
    return found


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


def _kernel_times(
    database: sqlite3.Connection, ranges: dict[int, list[_Range]]
) -> dict[Stage | None, dict[str, list[float]]]:
    columns = _columns(database, _KERNELS)
    if not {"start", "end"} <= columns:
        return {}
    name = next((f"kernel.{name}" for name in ("demangledName", "shortName") if name in columns), "NULL")
    launched, by = "NULL, NULL", ""
    if {"correlationId", "globalTid", "start"} <= _columns(database, _CALLS) and "correlationId" in columns:
        launched = "call.globalTid, call.start"
        same = f"AND (call.globalTid & ~{_THREAD}) = kernel.globalPid" if "globalPid" in columns else ""
        by = f"LEFT JOIN {_CALLS} AS call ON call.correlationId = kernel.correlationId {same}"
    found: dict[Stage | None, dict[str, list[float]]] = {}
    begins = {thread: [start for start, _, _ in of] for thread, of in ranges.items()}
    rows = database.execute(
        f'SELECT {name}, kernel.start, kernel."end", {launched} FROM {_KERNELS} AS kernel {by}'
    )
    named = _Names(database)
    for called, start, end, thread, moment in _bounded(rows):
        if not (isinstance(start, int) and isinstance(end, int) and start <= end):
            raise ValueError("a kernel without times, or that ended before it began")
        stage = None if thread is None else _stage_at(ranges.get(thread, []), begins.get(thread, []), moment)
        text = named.of(called)[:_NAME_LIMIT] or "not known"
        found.setdefault(stage, {}).setdefault(text, []).append(float(end - start))
    return found


def _bounded(rows: sqlite3.Cursor) -> Iterator[tuple[object, object, object, int | None, int]]:
    for count, row in enumerate(rows):
        if count >= KERNEL_LIMIT:
            raise Refused(f"more than {KERNEL_LIMIT:,} kernels: profile fewer pages")
        yield row


def _stage_at(ranges: list[_Range], begins: list[int], moment: int) -> Stage | None:
    """The stage of the innermost range that is open at a moment."""
    last = bisect_right(begins, moment)
    for start, end, stage in reversed(ranges[max(0, last - _OPEN_AT_ONCE) : last]):
        if start <= moment <= end:
            return stage
    return None


def _stage_rows(ranges: dict[int, list[_Range]]) -> tuple[Row, ...]:
    took: dict[Stage, list[float]] = {}
    for of in ranges.values():
        for start, end, stage in of:
            took.setdefault(stage, []).append(float(end - start))
    rows: list[Row] = []
    for stage, times in took.items():
        deviation = statistics.stdev(times) if len(times) > 1 else None
        rows += timing_rows(stage, math.fsum(times) / len(times), deviation, len(times))
    return tuple(rows)


def _gpu(database: sqlite3.Connection) -> str | None:
    """The one GPU of the machine; None where there are several, or none is named."""
    if "name" not in _columns(database, "TARGET_INFO_GPU"):
        return None
    names = {str(name)[:200] for (name,) in database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 64")}
    return names.pop() if len(names) == 1 else None

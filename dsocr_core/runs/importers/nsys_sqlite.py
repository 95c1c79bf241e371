"""Nsight Systems' own database (`nsys export --type sqlite`): stages, and kernels, each under its stage.

A kernel belongs to the innermost stage whose NVTX range was open on the thread that launched it. A stage
takes from the first start to the last end of what its range had the device do, graphs and copies too: the
host only queues it. The file is opened without writing, its schema is not trusted, and what takes too long is
ended.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import paired
from dsocr_core.runs.importers.imported import ImportedRun, RunFiles
from dsocr_core.runs.importers.nsys import BACKEND
from dsocr_core.runs.importers.reading import digest
from dsocr_core.runs.importers.stages import RANGE, by_stage, profile_tables, stage_of_range

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
_WORK = np.dtype([(name, "i8") for name in ("name", "start", "end", "thread", "moment")])
"""`name` is a number among the strings; -1 is not known."""


def read_database(files: RunFiles) -> list[ImportedRun]:
    """The kernels and stages of an export as a run. Raises InvalidFile."""
    size = files.place.stat().st_size
    if size > FILE_LIMIT:
        raise InvalidFile(f"{size:,} bytes; at most {FILE_LIMIT:,} are read: profile fewer pages")
    try:
        with closing(_opened(files.place)) as database:
            ranges = pd.DataFrame(_ranges(database), columns=[*RANGE])
            work = pd.concat([_work(database, table) for table in (_KERNELS, *_OTHER_WORK)], keys=[*"kcms"])
            names, gpu = _names(database, set(work["name"])), _gpu(database)
    except sqlite3.OperationalError as error:
        why = f"takes more than {SECONDS:g} s" if "interrupted" in str(error) else paired(str(error))[:200]
        raise InvalidFile(f"not an export of Nsight Systems that is read ({why})") from error
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise InvalidFile(f"a damaged database ({paired(str(error))[:200]})") from error
    if (work["start"] > work["end"]).any():
        raise InvalidFile("a kernel that ended before it began")
    stages, on_device = by_stage(work, ranges)
    work["stage"], work["took"] = stages, (work["end"] - work["start"]).astype(float)
    kernels = work.loc["k"] if "k" in work.index else work.iloc[:0]
    kernels = kernels.assign(name=kernels["name"].map(names).fillna("not known").astype(object))
    rows = profile_tables(BACKEND, kernels, ranges, on_device)
    if not rows:
        raise InvalidFile("no kernels and no range of a stage; profile with: nsys profile --trace=cuda,nvtx")
    files.digests["export.sqlite"] = digest(files.place)
    return [files.profile("nsys", f"Nsight Systems, database {files.name}.", rows, gpu=gpu)]


def _opened(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
    until = time.monotonic() + SECONDS
    database.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    database.text_factory = lambda content: content.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA cell_size_check=ON")
    if not _columns(database, _KERNELS) and not _columns(database, _RANGES):
        raise InvalidFile("a database that is no export of Nsight Systems, or one without kernels and ranges")
    return database


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table, none where it is not there; a view of its name is none."""
    real = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if database.execute(real, (table,)).fetchone() is None:
        return set()
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _ranges(database: sqlite3.Connection) -> list[tuple[int, int, int, str]]:
    ranges: list[tuple[int, int, int, str]] = []
    columns = _columns(database, _RANGES)
    if not {"start", "end", "globalTid"} <= columns:
        return ranges
    texts, join = ["event.text"] if "text" in columns else [], ""
    if "textId" in columns and {"id", "value"} <= _columns(database, "StringIds"):
        texts.append("string.value")
        join = "LEFT JOIN StringIds AS string ON string.id = event.textId"
    rows = database.execute(
        f'SELECT globalTid, start, "end", COALESCE({", ".join([*texts, "NULL", "NULL"])}) '
        f'FROM {_RANGES} AS event {join} WHERE "end" IS NOT NULL AND globalTid IS NOT NULL'
    )
    for count, (thread, start, end, text) in enumerate(rows):
        if count > RANGE_LIMIT:
            raise InvalidFile(f"more than {RANGE_LIMIT:,} ranges")
        if (stage := stage_of_range(str(text)[:200])) is not None:
            ranges.append((int(thread), int(start), int(end), stage.value))
    return ranges


def _work(database: sqlite3.Connection, table: str) -> pd.DataFrame:
    """Work of the device: name, start, end, and the thread and moment of its launch."""
    columns = _columns(database, table)
    if not {"start", "end"} <= columns:
        return pd.DataFrame(np.empty(0, _WORK))
    name = next((each for each in ("demangledName", "shortName") if each in columns), "NULL")
    launched, join = "-1, -1", ""
    if {"correlationId", "globalTid", "start"} <= _columns(database, _CALLS) and "correlationId" in columns:
        launched = "COALESCE(call.globalTid, -1), COALESCE(call.start, -1)"
        process = f"globalTid & ~{_THREAD}" if "globalPid" in columns else "NULL"
        # A launch may stand twice, as a call of the runtime and of the driver.
        join = (
            f"LEFT JOIN (SELECT correlationId, {process} AS process, globalTid, MIN(start) AS start FROM "
            f"{_CALLS} GROUP BY correlationId, {process}) AS call ON call.correlationId = work.correlationId "
            + ("AND call.process = work.globalPid" if "globalPid" in columns else "")
        )
    rows = database.execute(
        f'SELECT COALESCE({name}, -1), work.start, work."end", {launched} FROM {table} AS work {join} '
        f"LIMIT {KERNEL_LIMIT + 1}"
    )
    try:
        found = pd.DataFrame(np.fromiter(rows, _WORK))
    except (TypeError, ValueError) as error:
        raise InvalidFile("a kernel without times, or with a name that is no number") from error
    if len(found) > KERNEL_LIMIT:
        raise InvalidFile(f"more than {KERNEL_LIMIT:,} kernels or copies: profile fewer pages")
    return found


def _names(database: sqlite3.Connection, numbers: set[int]) -> dict[int, str]:
    """The strings of these numbers."""
    if not {"id", "value"} <= _columns(database, "StringIds"):
        return {}
    rows = database.execute("SELECT id, value FROM StringIds")
    return {number: str(text)[:_NAME_LIMIT] for number, text in rows if number in numbers and text}


def _gpu(database: sqlite3.Connection) -> str | None:
    """The one GPU of the machine; None where there are several, or none is named."""
    if "name" not in _columns(database, "TARGET_INFO_GPU"):
        return None
    names = {str(name)[:200] for (name,) in database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 64")}
    return names.pop() if len(names) == 1 else None

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
from dsocr_core.runs.importers.reading import FileProbe, digest
from dsocr_core.runs.importers.stages import NO_STAGE, Ranges, stage_of_range

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
_UNKNOWN = -1
_WORK = [("name", "i8"), ("start", "i8"), ("end", "i8"), ("thread", "i8"), ("moment", "i8")]


def is_database(probe: FileProbe) -> bool:
    return probe.start.startswith(MAGIC)


def read_database(files: RunFiles) -> list[ImportedRun]:
    """The kernels and stages of an export as a run. Raises InvalidFile."""
    file = files.place
    size = file.stat().st_size
    if size > FILE_LIMIT:
        raise InvalidFile(f"{size:,} bytes; at most {FILE_LIMIT:,} are read: profile fewer pages")
    try:
        with closing(_opened(file)) as database:
            ranges = _ranges(database)
            kernels, work = _launched(database, ranges)
            gpu = _gpu(database)
    except sqlite3.OperationalError as error:
        why = f"takes more than {SECONDS:g} s" if "interrupted" in str(error) else paired(str(error))[:200]
        raise InvalidFile(f"not an export of Nsight Systems that is read ({why})") from error
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise InvalidFile(f"a damaged database ({paired(str(error))[:200]})") from error
    rows = ranges.tables(BACKEND, kernels, ranges.threads, ranges.took_on_device(work))
    if not rows:
        raise InvalidFile("no kernels and no range of a stage; profile with: nsys profile --trace=cuda,nvtx")
    files.digests["export.sqlite"] = digest(file)
    return [files.profile("nsys", f"Nsight Systems, database {files.name}.", rows, gpu=gpu)]


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
    real = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if database.execute(real, (table,)).fetchone() is None:
        return set()
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _named(database: sqlite3.Connection, value: str) -> tuple[str, str]:
    """SQL of the text that a value is, or that has its number among the strings, and the join for it."""
    if not {"id", "value"} <= _columns(database, "StringIds"):
        return f"CASE typeof({value}) WHEN 'text' THEN {value} END", ""
    join = f"LEFT JOIN StringIds AS string ON string.id = {value}"
    return f"CASE typeof({value}) WHEN 'text' THEN {value} ELSE string.value END", join


def _ranges(database: sqlite3.Connection) -> Ranges:
    ranges, columns = Ranges(), _columns(database, _RANGES)
    if not {"start", "end", "globalTid"} <= columns:
        return ranges
    there = [f"event.{name}" for name in ("text", "textId") if name in columns]
    name, join = _named(database, f"COALESCE({', '.join([*there, 'NULL', 'NULL'])})")
    rows = database.execute(
        f'SELECT globalTid, start, "end", {name} FROM {_RANGES} AS event {join} '
        'WHERE "end" IS NOT NULL AND globalTid IS NOT NULL'
    )
    for count, (thread, start, end, text) in enumerate(rows):
        if count > RANGE_LIMIT:
            raise InvalidFile(f"more than {RANGE_LIMIT:,} ranges")
        if (stage := stage_of_range(str(text)[:200])) is not None:
            ranges.add(int(thread), int(start), int(end), stage)
    return ranges


def _launched(database: sqlite3.Connection, ranges: Ranges) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Kernels with name, stage and time, and all work that the device did, with its launch."""
    columns = _columns(database, _KERNELS)
    name = next((f"work.{name}" for name in ("demangledName", "shortName") if name in columns), "NULL")
    names: dict[str, int] = {}
    kernels = _work(database, _KERNELS, name, names)
    stages = np.full(len(kernels), NO_STAGE)
    for thread, part in kernels.groupby("thread"):
        if thread != _UNKNOWN:
            stages[part.index] = ranges.stages_at(thread, part["moment"].to_numpy())
    took = (kernels["end"] - kernels["start"]).astype(float)
    texts = pd.Series(list(names), dtype=object).reindex(kernels["name"]).to_numpy()
    work = pd.concat([kernels, *(_work(database, table, "NULL", {}) for table in _OTHER_WORK)])
    return pd.DataFrame({"name": texts, "stage": stages, "took": took}), work[work["thread"] != _UNKNOWN]


def _work(database: sqlite3.Connection, table: str, name: str, names: dict[str, int]) -> pd.DataFrame:
    """Work of a device: place of its name in `names`, start, end, thread and moment of its launch or -1."""
    columns = _columns(database, table)
    if not {"start", "end"} <= columns:
        return pd.DataFrame(np.empty(0, _WORK))
    launched, by = f"{_UNKNOWN}, {_UNKNOWN}", ""
    if {"correlationId", "globalTid", "start"} <= _columns(database, _CALLS) and "correlationId" in columns:
        launched = f"COALESCE(call.globalTid, {_UNKNOWN}), COALESCE(call.start, {_UNKNOWN})"
        process = f"globalTid & ~{_THREAD}"
        same = "AND call.process = work.globalPid" if "globalPid" in columns else ""
        # A launch may stand twice, as a call of the runtime and of the driver.
        by = (
            f"LEFT JOIN (SELECT correlationId, {process} AS process, globalTid, MIN(start) AS start FROM "
            f"{_CALLS} "
            f"GROUP BY correlationId, {process if same else 'NULL'}) AS call "
            f"ON call.correlationId = work.correlationId {same}"
        )
    text, join = _named(database, name)
    rows = database.execute(
        f'SELECT {text}, work.start, work."end", {launched} FROM {table} AS work {by} {join} '
        f"LIMIT {KERNEL_LIMIT + 1}"
    )
    numbered = (
        (names.setdefault(str(text or "not known")[:_NAME_LIMIT], len(names)), *rest) for text, *rest in rows
    )
    try:
        found = pd.DataFrame(np.fromiter(numbered, _WORK))
    except (TypeError, ValueError) as error:
        raise InvalidFile("a kernel without times") from error
    if len(found) > KERNEL_LIMIT:
        raise InvalidFile(f"more than {KERNEL_LIMIT:,} kernels or copies: profile fewer pages")
    if (found["start"] > found["end"]).any():
        raise InvalidFile("a kernel that ended before it began")
    return found


def _gpu(database: sqlite3.Connection) -> str | None:
    """The one GPU of the machine; None where there are several, or none is named."""
    if "name" not in _columns(database, "TARGET_INFO_GPU"):
        return None
    names = {str(name)[:200] for (name,) in database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 64")}
    return names.pop() if len(names) == 1 else None

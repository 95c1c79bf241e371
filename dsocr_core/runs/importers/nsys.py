"""Nsight Systems: tables of `nsys stats --format csv`, of 2020 to 2026, and the database of `nsys export`.

Every time in them carries the profiler's overhead, so whatever holds one is a profiled run. A table is taken
whole or not at all: a row whose average is not its total over its instances has nothing to give. In the
database a kernel belongs to the innermost stage whose NVTX range was open on the thread that launched it, and
a stage takes from the first start to the last end of what its range had the device do, graphs and copies
too: the host only queues it. The file is opened without writing, its schema is not trusted, and what takes
too long is ended.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import paired
from dsocr_core.models.stages import Stage
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles, digest
from dsocr_core.runs.importers.stages import (
    NAME_LIMIT,
    RANGE,
    by_stage,
    kernel_rows,
    profile_tables,
    stage_of_range,
    summed,
    timing_rows,
)
from dsocr_core.runs.importers.tables import Table, figures, find_tables, refuse

KERNEL_SUMMARY = "summary_cuda_gpu_kern_sum.csv"
BACKEND = "nsys"
"""Backend that the stages of a profile are said to be of: the profiled program itself is not known."""
_NS = {"ns": 1.0, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_TIMES = {
    "total time": "total_ns", "avg": "avg_ns", "med": "med_ns", "min": "min_ns", "max": "max_ns",
    "stddev": "stddev_ns", "duration": "took",
}  # fmt: skip
_COLUMNS = {**_TIMES, "instances": "instances", "time": "time_percent"}
_KERNELS = ("cuda_gpu_kern_sum", "cuda_gpu_sum", "cuda_gpu_trace")
_RANGES = ("nvtx_pushpop_sum", "nvtx_sum")
"""Reports by what they hold; of those with the same the first is taken."""

FILE_LIMIT = 8 * 1024**3
SECONDS = 120.0
RANGE_LIMIT, KERNEL_LIMIT = 1_000_000, 5_000_000
_KERNEL, _NVTX, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
_WORK = (_KERNEL, *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("GRAPH_TRACE", "MEMCPY", "MEMSET")))
_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the clock."""
_PROCESS = f"globalTid & ~{(1 << 24) - 1}"
"""Of nsys' number of a thread all but the thread's own bits."""
_LAUNCH = np.dtype([(name, "i8") for name in ("name", "start", "end", "thread", "moment")])
"""`name` is a number among the strings; -1 is not known."""


# --- tables -----------------------------------------------------------------------------------------


def read_tables(
    files: RunFiles, content: bytes, tables: Sequence[Table], unread: Sequence[str]
) -> ImportedRun:
    """The reports of a file, as one run that knows nothing else. Raises InvalidFile.

    `unread` are the names of further reports in the file.
    """
    of = _by_report(tables)
    kernels, ranges = _first(of, _KERNELS), _first(of, _RANGES)
    found = _kernels(kernels) if kernels else pd.DataFrame()
    stages, other_ranges = _stages(ranges) if ranges else ([], "")
    rows = {"kernels": kernel_rows(found), "timings": stages}
    taken = [report for report in of if report in [table.report for table in (kernels, ranges) if table]]
    left_out = [report for report in dict.fromkeys([*unread, *of]) if report not in taken]
    if not any(rows.values()):
        way_out = f"no report of it is read ({', '.join(left_out)}): give cuda_gpu_kern_sum or nvtx_sum"
        raise InvalidFile(other_ranges or way_out)
    notes = [f"Nsight Systems ({', '.join(taken)}) in {files.name}.", other_ranges, shares_note(found)]
    notes += [f"Not taken of it: {', '.join(left_out)[:300]}."] if left_out else []
    run = files.profile(
        "nsys", " ".join(filter(None, notes)), {name: each for name, each in rows.items() if each}
    )
    return replace(run, files={f"imported/{KERNEL_SUMMARY}": content})


def kernels_of(text: str) -> pd.DataFrame:
    """The kernels of a summary's text in its order. Raises InvalidFile."""
    if (table := _first(_by_report(find_tables(text)[0]), _KERNELS)) is None:
        raise InvalidFile("not a kernel summary: its columns are not those of cuda_gpu_kern_sum")
    return _kernels(table)


def _first(of: dict[str, Table], names: Sequence[str]) -> Table | None:
    return next((of[name] for name in names if name in of), None)


def _by_report(found: Sequence[Table]) -> dict[str, Table]:
    """Tables by report. Raises InvalidFile where one report has two tables that say different things."""
    of: dict[str, Table] = {}
    for table in found:
        known = of.setdefault(table.report, table)
        if known.units != table.units or not np.array_equal(known.rows, table.rows):
            raise InvalidFile(
                f"{table.report} stands in it twice, of two profiles: give each a file of its own"
            )
    return of


def _figures(table: Table, name: str) -> pd.DataFrame:
    """The names of a table, its times in ns, instances and shares, by line. Raises InvalidFile."""
    texts = table.rows[[column for column in _COLUMNS if column in table.rows]].rename(columns=_COLUMNS)
    long = texts.melt(ignore_index=False)
    plain = figures(
        long["value"], long["variable"].map({"time_percent": "%", "instances": "count"}), {"count"}
    )
    values = pd.to_numeric(plain, errors="coerce").to_numpy(float).reshape(texts.shape, order="F")
    found = pd.DataFrame(values, texts.index, texts.columns)
    for column in found:
        wrong = (found[column].isna() & (texts[column] != "")) | ~found[column].fillna(0).between(0, 1e18)
        refuse(wrong, "row {}: '{:.40}' is not a number", texts[column])
    unit = next(
        (_NS[of.removesuffix("ec")] for of in table.units.values() if of.removesuffix("ec") in _NS), 1.0
    )
    found[found.columns.intersection(_TIMES.values())] *= unit
    found["name"] = table.rows[name]
    refuse(found["name"] == "", "row {} has no name")
    refuse(found["took" if "took" in found else "total_ns"].isna(), "row {} has no time")
    if "took" in found:
        return found
    instances = found["instances"]
    is_count = (instances % 1 == 0) & instances.between(1, 1e15)
    refuse(~is_count, "row {}: '{:.40}' instances: not a whole number of 1 and more", texts["instances"])
    if "avg_ns" in found:
        mean = found["total_ns"] / instances
        # Nanoseconds are printed with one decimal or none, larger units with three or more.
        rounded = np.maximum(max(1.0, 1e-3 * unit) * (1 + 1 / instances), 1e-6 * mean)
        said = [texts[column] for column in ("avg_ns", "total_ns", "instances")]
        refuse((found["avg_ns"] - mean).abs() > rounded, "row {}: the average {} is not {} over {}", *said)
    if "time_percent" in found:
        refuse(found["time_percent"] > 100, "row {}: {}% of the time", texts["time_percent"])
    return found.astype({"instances": "int64"})


def _kernels(table: Table) -> pd.DataFrame:
    """The kernels of a table, with all figures that it has."""
    found = _figures(table, "operation" if table.report == "cuda_gpu_sum" else "name")
    if table.report == "cuda_gpu_trace":
        return summed(found.assign(stage=None))
    return found[table.rows["category"] != "CUDA_API"] if "category" in table.rows else found


def _stages(table: Table) -> tuple[list[Row], str]:
    """Times of the stages that ranges are named after, and a sentence on the ranges that are none."""
    found = _figures(table, "range")
    found["stage"] = found["name"].map(stage_of_range).astype(object)
    rows: list[Row] = []
    for of in found[found["stage"].notna()].to_dict("records"):
        mean, deviation = of["total_ns"] / of["instances"], of.get("stddev_ns", np.nan)
        rows += timing_rows(BACKEND, of["stage"], mean, deviation, of["instances"])
    others = [paired(name)[:40] for name in found.loc[found["stage"].isna(), "name"]]
    named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    if not rows:
        return [], f"no range of it is a stage ({', '.join(Stage)}): {named}"
    return rows, f"Ranges that are no stage of this project: {named}." if others else ""


def shares_note(found: pd.DataFrame) -> str:
    """A sentence when the kernels' own shares say that rows are missing; empty when they are whole."""
    shares = found["time_percent"] if "time_percent" in found else pd.Series(dtype=float)
    if shares.empty or shares.isna().any() or abs(100 - shares.sum()) <= 0.05 * len(found) + 0.1:
        return ""
    return f"The kernels' shares add up to {shares.sum():.1f}%: the list is not whole."


# --- the database -----------------------------------------------------------------------------------


def read_database(files: RunFiles) -> list[ImportedRun]:
    """The kernels and stages of an export as a run. Raises InvalidFile."""
    size = files.place.stat().st_size
    if size > FILE_LIMIT:
        raise InvalidFile(f"{size:,} bytes; at most {FILE_LIMIT:,} are read: profile fewer pages")
    try:
        with closing(_opened(files.place)) as database:
            ranges = pd.DataFrame(_ranges(database), columns=[*RANGE])
            work = pd.concat({table: _launches(database, table) for table in _WORK})
            strings = _strings(database, set(work["name"]))
            gpu = _gpu(database)
    except sqlite3.OperationalError as error:
        why = f"takes more than {SECONDS:g} s" if "interrupted" in str(error) else paired(str(error))[:200]
        raise InvalidFile(f"not an export of Nsight Systems that is read ({why})") from error
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise InvalidFile(f"a damaged database ({paired(str(error))[:200]})") from error
    if (work["start"] > work["end"]).any():
        raise InvalidFile("a kernel that ended before it began")
    stages, on_device = by_stage(work, ranges)
    work["stage"], work["took"] = stages, (work["end"] - work["start"]).astype(float)
    kernels = work[work.index.get_level_values(0) == _KERNEL]
    kernels = kernels.assign(name=kernels["name"].map(strings).fillna("not known").astype(object))
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
    if not _has(database, _KERNEL, "start", "end") and not _has(database, _NVTX, "start", "end"):
        raise InvalidFile("a database that is no export of Nsight Systems, or one without kernels and ranges")
    return database


def _has(database: sqlite3.Connection, table: str, *columns: str) -> bool:
    """Tell whether a table has these columns; a view of its name has none."""
    real = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if database.execute(real, (table,)).fetchone() is None:
        return False
    return {*columns} <= {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _ranges(database: sqlite3.Connection) -> list[tuple[int, int, int, str]]:
    ranges: list[tuple[int, int, int, str]] = []
    if not _has(database, _NVTX, "start", "end", "globalTid", "text"):
        return ranges
    text, join = "event.text", ""
    if _has(database, _NVTX, "textId") and _has(database, "StringIds", "id", "value"):
        text = "COALESCE(event.text, string.value)"
        join = "LEFT JOIN StringIds AS string ON string.id = event.textId"
    rows = database.execute(
        f'SELECT globalTid, start, "end", {text} FROM {_NVTX} AS event {join} '
        'WHERE "end" IS NOT NULL AND globalTid IS NOT NULL'
    )
    for count, (thread, start, end, name) in enumerate(rows):
        if count > RANGE_LIMIT:
            raise InvalidFile(f"more than {RANGE_LIMIT:,} ranges")
        if (stage := stage_of_range(str(name)[:200])) is not None:
            ranges.append((int(thread), int(start), int(end), stage.value))
    return ranges


def _launches(database: sqlite3.Connection, table: str) -> pd.DataFrame:
    """Work of the device: name, start, end, and the thread and moment of its launch."""
    if not _has(database, table, "start", "end"):
        return pd.DataFrame(np.empty(0, _LAUNCH))
    name = next((each for each in ("demangledName", "shortName") if _has(database, table, each)), "NULL")
    launched, join = "-1, -1", ""
    calls = _has(database, _RUNTIME, "correlationId", "globalTid", "start")
    if calls and _has(database, table, "correlationId", "globalPid"):
        launched = "COALESCE(call.globalTid, -1), COALESCE(call.start, -1)"
        # A launch may stand twice, as a call of the runtime and of the driver.
        join = (
            f"LEFT JOIN (SELECT correlationId, {_PROCESS} AS process, globalTid, MIN(start) AS start FROM "
            f"{_RUNTIME} GROUP BY correlationId, {_PROCESS}) AS call ON call.correlationId = "
            "work.correlationId AND call.process = work.globalPid"
        )
    rows = database.execute(
        f'SELECT COALESCE({name}, -1), work.start, work."end", {launched} FROM {table} AS work {join} '
        f"LIMIT {KERNEL_LIMIT + 1}"
    )
    try:
        found = pd.DataFrame(np.fromiter(rows, _LAUNCH))
    except (TypeError, ValueError) as error:
        raise InvalidFile("a kernel without times, or with a name that is no number") from error
    if len(found) > KERNEL_LIMIT:
        raise InvalidFile(f"more than {KERNEL_LIMIT:,} kernels or copies: profile fewer pages")
    return found


def _strings(database: sqlite3.Connection, numbers: set[int]) -> dict[int, str]:
    if not _has(database, "StringIds", "id", "value"):
        return {}
    rows = database.execute("SELECT id, value FROM StringIds")
    return {number: str(text)[:NAME_LIMIT] for number, text in rows if number in numbers and text}


def _gpu(database: sqlite3.Connection) -> str | None:
    """The one GPU of the machine; None where there are several, or none is named."""
    if not _has(database, "TARGET_INFO_GPU", "name"):
        return None
    names = {str(name)[:200] for (name,) in database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 64")}
    return names.pop() if len(names) == 1 else None

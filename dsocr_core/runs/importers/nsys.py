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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from urllib.parse import quote

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.errors import one_line
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.models.stages import Stage
from dsocr_core.runs.importers import profiles
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles, digest
from dsocr_core.runs.importers.tables import Table, find_tables, parse_figures, refuse

KERNEL_SUMMARY = "summary_cuda_gpu_kern_sum.csv"
_NS = {"ns": 1.0, "us": 1e3, "μs": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_TIMES = {"total_ns", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns", "took"}
_KERNELS = ("cuda_gpu_kern_sum", "cuda_gpu_sum", "cuda_gpu_trace")
_RANGES = ("nvtx_pushpop_sum", "nvtx_sum")
"""Reports by what they hold; of those with the same the first is taken."""

FILE_LIMIT, ROW_LIMIT, SECONDS = 8 * 1024**3, 5_000_000, 120.0
_STEPS = 100_000  # steps of SQLite's machine between two looks at the clock
_LAUNCHED = ("start", "end", "correlationId", "globalPid", "demangledName", "shortName")
_VIEWS = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL", *_LAUNCHED),
    "graphs": ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *_LAUNCHED),
    "copies": ("CUPTI_ACTIVITY_KIND_MEMCPY", *_LAUNCHED),
    "fills": ("CUPTI_ACTIVITY_KIND_MEMSET", *_LAUNCHED),
    "calls": ("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "correlationId", "globalTid"),
    "marks": ("NVTX_EVENTS", "start", "end", "globalTid", "text", "textId"),
    "strings": ("StringIds", "id", "value"),
    "gpus": ("TARGET_INFO_GPU", "name"),
}
"""The tables that are read, and their columns."""
# Of nsys' number of a thread the last 24 bits are the thread's own. A launch may stand twice, as a call of
# the runtime and of the driver.
_WORK = """
    WITH work AS (SELECT 1 AS is_kernel, * FROM kernels UNION ALL SELECT 0, * FROM graphs
                  UNION ALL SELECT 0, * FROM copies UNION ALL SELECT 0, * FROM fills),
    call AS (SELECT correlationId AS number, globalTid & ~16777215 AS process, globalTid AS thread,
             MIN(start) AS moment FROM calls GROUP BY 1, 2)
    SELECT is_kernel, COALESCE(demangledName, shortName, -1), start, "end", COALESCE(thread, -1),
           COALESCE(moment, -1)
    FROM work LEFT JOIN call ON number = correlationId AND process = globalPid LIMIT ?
"""
_LAUNCH = np.dtype([(name, "i8") for name in ("is_kernel", "name", "start", "end", "thread", "moment")])
"""`name` is a number among the strings; -1 is not known."""
_RANGES_OF = """
    SELECT globalTid, start, "end", COALESCE(text, value) FROM marks LEFT JOIN strings ON id = textId
    WHERE "end" IS NOT NULL AND globalTid IS NOT NULL
"""


# --- tables -----------------------------------------------------------------------------------------


def read_tables(files: RunFiles, tables: Mapping[str, Table], unread: Iterable[str]) -> list[ImportedRun]:
    """The reports of a file, as a run that knows nothing else. `unread` names others. Raises InvalidFile."""
    kernels, ranges = _first(tables, _KERNELS), _first(tables, _RANGES)
    found = _kernels(kernels) if kernels is not None else pd.DataFrame()
    stages, other_ranges = _stages(ranges) if ranges is not None else ([], "")
    taken = [table.attrs["report"] for table in (kernels, ranges) if table is not None]
    left_out = ", ".join(report for report in (*unread, *tables) if report not in taken)
    if not len(found) and not stages:
        raise InvalidFile(other_ranges or f"only {left_out} in it: give cuda_gpu_kern_sum or nvtx_sum")
    files.digests[KERNEL_SUMMARY] = digest(files.place)
    notes = (other_ranges, shares_note(found), f"Not taken of it: {left_out[:300]}." if left_out else "")
    rows = {"kernels": profiles.kernel_rows(found), "timings": stages}
    return profiles.profile_run(files, "nsys", f"Nsight Systems ({', '.join(taken)}) in", rows, *notes)


def kernels_of(text: str) -> pd.DataFrame:
    """The kernels of a summary's text in its order. Raises InvalidFile."""
    if (table := _first(find_tables(text)[0], _KERNELS)) is None:
        raise InvalidFile("not a kernel summary: its columns are not those of cuda_gpu_kern_sum")
    return _kernels(table)


def _first(tables: Mapping[str, Table], names: Iterable[str]) -> Table | None:
    return next((tables[name] for name in names if name in tables), None)


def _figures(table: Table, name: str) -> pd.DataFrame:
    """The names of a table, its times in ns, instances and shares, by line. Raises InvalidFile."""
    known = [each for each in table if each in {*_TIMES, "instances", "time_percent"}]
    long = table[known].melt(ignore_index=False)
    units = long["variable"].map({"time_percent": "%", "instances": "count"})
    values = parse_figures(long["value"], units, {"count"})
    wrong = (values.isna() & (long["value"] != "")) | ~values.fillna(0).between(0, 1e18)
    refuse(wrong, "row {}: '{:.40}' is not a number", long["value"])
    found = pd.DataFrame(values.to_numpy().reshape((len(table), -1), order="F"), table.index, known)
    unit = next((_NS[of] for each in table.attrs["units"] if (of := each.removesuffix("ec")) in _NS), 1.0)
    found[[each for each in known if each in _TIMES]] *= unit
    found["name"] = table[name]
    refuse(found["name"] == "", "row {} has no name")
    refuse(found["took" if "took" in found else "total_ns"].isna(), "row {} has no time")
    if "took" in found:
        return found
    instances = found["instances"]
    is_count = (instances % 1 == 0) & instances.between(1, 1e15)
    refuse(~is_count, "row {}: '{:.40}' instances: not a whole number of 1 and more", table["instances"])
    if "avg_ns" in found:
        mean = found["total_ns"] / instances
        # Nanoseconds are printed with one decimal or none, larger units with three or more.
        rounded = np.maximum(max(1.0, 1e-3 * unit) * (1 + 1 / instances), 1e-6 * mean)
        said = [table[column] for column in ("avg_ns", "total_ns", "instances")]
        refuse((found["avg_ns"] - mean).abs() > rounded, "row {}: the average {} is not {} over {}", *said)
    if "time_percent" in found:
        refuse(found["time_percent"] > 100, "row {}: {}% of the time", table["time_percent"])
    return found.astype({"instances": "int64"})


def _kernels(table: Table) -> pd.DataFrame:
    """The kernels of a table, with all figures that it has."""
    found = _figures(table, "operation" if "operation" in table else "name")
    if "took" in table:
        return profiles.summed(found.assign(stage=None))
    return found[table["category"] != "CUDA_API"] if "category" in table else found


def _stages(table: Table) -> tuple[list[Row], str]:
    """Times of the stages that ranges are named after, and a sentence on the ranges that are none."""
    found = _figures(table, "range")
    found["stage"] = found["name"].map(profiles.stage_of_range).astype(object)
    rows: list[Row] = []
    for of in found[found["stage"].notna()].to_dict("records"):
        calls, deviation = of["instances"], of.get("stddev_ns", np.nan) / 1e6
        times = {"mean": of["total_ns"] / calls / 1e6, "std": deviation if calls > 1 else None}
        rows += profiles.spread_rows("nsys", of["stage"], times, calls)
    others = [without_surrogates(name)[:40] for name in found.loc[found["stage"].isna(), "name"]]
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
    if (size := files.place.stat().st_size) > FILE_LIMIT:
        raise InvalidFile(f"{size:,} bytes; at most {FILE_LIMIT:,} are read: profile fewer pages")
    uri = f"file:{quote(str(files.place.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            _open_views(database)
            work = pd.DataFrame(np.fromiter(database.execute(_WORK, (ROW_LIMIT + 1,)), _LAUNCH))
            ranges = pd.DataFrame(_ranges(database), columns=[*profiles.RANGE])
            wanted = {*work["name"]}
            strings = ((number, str(text)) for number, text in database.execute("SELECT * FROM strings"))
            names = {number: text[: profiles.NAME_LIMIT] for number, text in strings if number in wanted}
            gpus = {str(name)[:200] for (name,) in database.execute("SELECT * FROM gpus LIMIT 64")}
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        late = f"takes more than {SECONDS:g} s" if "interrupted" in str(error) else ""
        why = late or without_surrogates(one_line(error, 200))
        raise InvalidFile(f"a damaged database, or no export of Nsight Systems ({why})") from error
    if len(work) > ROW_LIMIT:
        raise InvalidFile(f"more than {ROW_LIMIT:,} kernels or copies: profile fewer pages")
    if (work["start"] > work["end"]).any():
        raise InvalidFile("a kernel that ended before it began")
    work["stage"], on_device = profiles.by_stage(work, ranges)
    work["took"] = (work["end"] - work["start"]).astype(float)
    kernels = work[work["is_kernel"] == 1]
    kernels = kernels.assign(name=kernels["name"].map(names).fillna("not known").astype(object))
    rows = profiles.profile_tables("nsys", kernels, ranges, on_device)
    if not any(rows.values()):
        raise InvalidFile("no kernels and no range of a stage; profile with: nsys profile --trace=cuda,nvtx")
    files.digests["export.sqlite"] = digest(files.place)
    gpu = gpus.pop() if len(gpus) == 1 else None  # where there are several it is not known which
    return profiles.profile_run(files, "nsys", "Nsight Systems, database", rows, gpu=gpu)


def _open_views(database: sqlite3.Connection) -> None:
    """Make views of the export's tables, of which any may be missing, and columns of them.

    Nothing of the file is trusted: a view of it is no table, and time is limited. Raises InvalidFile.
    """
    until = time.monotonic() + SECONDS
    database.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    database.text_factory = lambda content: content.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA cell_size_check=ON")
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables & {_VIEWS["kernels"][0], _VIEWS["marks"][0]}:
        raise InvalidFile("a database that is no export of Nsight Systems, or one without kernels and ranges")
    for view, (table, *columns) in _VIEWS.items():
        there = [row[1] for row in database.execute(f"PRAGMA table_info({table})")] * (table in tables)
        cells = ", ".join(f'"{name}"' if name in there else f'NULL AS "{name}"' for name in columns)
        source = table if there else "(SELECT 1) WHERE 0"
        database.execute(f"CREATE TEMP VIEW {view} AS SELECT {cells} FROM {source}")


def _ranges(database: sqlite3.Connection) -> Iterator[tuple[int, int, int, str]]:
    """The ranges of stages that have ended."""
    for count, (thread, start, end, name) in enumerate(database.execute(_RANGES_OF)):
        if count >= ROW_LIMIT:
            raise InvalidFile(f"more than {ROW_LIMIT:,} ranges")
        if (stage := profiles.stage_of_range(str(name)[:200])) is not None:
            yield int(thread), int(start), int(end), stage.value

"""Nsight Systems: tables that `nsys stats --format csv` writes, of 2020 to 2026, one or several in a file.

Every time in them carries the profiler's overhead, so whatever holds one is a profiled run. A table is taken
whole or not at all: a row whose average is not its total over its instances has nothing to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import paired
from dsocr_core.models.family import all_stages
from dsocr_core.runs.importers.imported import ImportedRun, Row, file_record
from dsocr_core.runs.importers.reading import digest
from dsocr_core.runs.importers.stages import kernel_rows, stage_of_range, summed, timing_rows
from dsocr_core.runs.importers.tables import Table, decimal_comma, figures, find_tables

KERNEL_SUMMARY = "summary_cuda_gpu_kern_sum.csv"
BACKEND = "nsys"
"""Backend that the stages of a profile are said to be of: the profiled program itself is not known."""
_NS = {
    "ns": 1.0, "nsec": 1.0, "us": 1e3, "μs": 1e3, "µs": 1e3, "usec": 1e3, "ms": 1e6, "msec": 1e6,
    "s": 1e9, "sec": 1e9,
}  # fmt: skip
_TIMES = {
    "total time": "total_ns", "avg": "avg_ns", "med": "med_ns", "min": "min_ns", "max": "max_ns",
    "stddev": "stddev_ns", "duration": "took",
}  # fmt: skip
_KERNELS = ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_sum", "cuda_gpu_trace")
_RANGES = ("nvtx_pushpop_sum", "nvtx_sum", "nvtx_gpu_proj_sum")
_CALLS = "cuda_api_sum"
"""Reports by what they hold; of those with the same the first is taken."""
_HOST_CALL = r"cu[A-Z]|cuda[A-Z]"


def read_tables(file: Path, content: bytes, tables: Sequence[Table], unread: Sequence[str]) -> ImportedRun:
    """The reports of a file, as one run that knows nothing else. Raises InvalidFile.

    `unread` are the names of further reports in the file.
    """
    # osrt_sum and syscall_sum, which stand in a file of all reports, have the columns of cuda_api_sum.
    of_system = [table for table in tables if table.report == _CALLS and not _is_host(table).any()]
    of = _by_report([table for table in tables if not any(table is each for each in of_system)])
    rows: dict[str, Sequence[Row]] = {}
    kernels, ranges = (
        next((of[name] for name in names if name in of), None) for names in (_KERNELS, _RANGES)
    )
    left = shares = ""
    if kernels is not None:
        found = _kernels(kernels)
        rows["kernels"], shares = kernel_rows(found), shares_note(found)
    if ranges is not None:
        rows["timings"], left = _stages(ranges)
    if _CALLS in of:
        rows["reported"] = _calls(of[_CALLS])
    rows = {name: each for name, each in rows.items() if each}
    taken = [table.report for table in (kernels, ranges) if table] + [_CALLS]
    left_out = [*unread, *(report for report in of if report not in taken)]
    left_out += ["osrt_sum"] if of_system and "osrt_sum" not in left_out else []
    if not rows:
        raise InvalidFile(
            left or f"no report of it is read ({', '.join(left_out)}): give cuda_gpu_kern_sum or nvtx_sum"
        )
    reports = ", ".join(report for report in of if report in taken)
    notes = [f"Nsight Systems ({reports}) in {paired(file.name)[:200]}.", left, shares]
    notes += [f"Not taken of it: {', '.join(left_out)[:300]}."] if left_out else []
    record = file_record(
        "nsys", {KERNEL_SUMMARY: digest(content)}, file, " ".join(filter(None, notes)),
        backends=(BACKEND,) if "timings" in rows else (),
    )  # fmt: skip
    return ImportedRun(record, file, rows, {f"imported/{KERNEL_SUMMARY}": content})


def kernels_of(text: str) -> pd.DataFrame:
    """The kernels of a summary's text in its order. Raises InvalidFile."""
    of = _by_report(find_tables(text)[0])
    if (table := next((of[name] for name in _KERNELS if name in of), None)) is not None:
        return _kernels(table)
    raise InvalidFile("not a kernel summary: its columns are not those of cuda_gpu_kern_sum")


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


def _is_host(calls: Table) -> pd.Series:
    return calls.rows["name"].str.match(_HOST_CALL)


# --- rows -------------------------------------------------------------------------------------------


def _figures(table: Table, count: str = "instances") -> pd.DataFrame:
    """A table's times in ns, its instances and shares, by line. Raises InvalidFile, which names the row."""
    rows = table.rows
    known = {**_TIMES, count: "instances", "time": "time_percent"}
    named = {name: to for name, to in known.items() if name in rows}
    units = ["%" if name == "time" else name for name in named for _ in rows.index]
    comma = decimal_comma(pd.concat([rows[name] for name in named]), units, frozenset({count}))
    usual = next((_NS[unit] for unit in table.units.values() if unit in _NS), 1.0)
    worth = {name: _NS.get(table.units.get(name, ""), usual) if name in _TIMES else 1.0 for name in named}
    found = pd.DataFrame(index=rows.index)
    for name, to in named.items():
        found[to] = figures(rows[name], comma) * worth[name]
        wrong = (found[to].isna() & (rows[name] != "")) | (found[to] < 0)
        _refuse(wrong, "row {}: '{:.40}' is not a number", rows[name])
    if "took" in found:
        _refuse(found["took"].isna(), "row {} has no time")
        return found
    total, instances = found["total_ns"], found["instances"]
    _refuse(total.isna(), "row {} has no total time")
    whole = (instances % 1 == 0) & (instances <= 1e15)
    _refuse(~whole, "row {}: '{:.40}' is not a whole number", rows[count])
    _refuse(instances < 1, "row {}: a kernel that ran {:.40} times", rows[count])
    if "avg" in rows:
        mark = "," if comma else "."
        printed = sum(
            # What one of the last digit is worth.
            10.0 ** -rows[name].map(lambda cell: len(cell.partition(mark)[2])) * worth[name] / by
            for name, by in (("avg", 1), ("total time", instances))
        )
        off = (found["avg_ns"] - total / instances).abs() > np.maximum(printed, 1e-6 * total / instances)
        said = [rows[name] for name in ("avg", "total time", count)]
        _refuse(off, "row {}: the average {} is not {} over {}", *said)
    if "time_percent" in found:
        _refuse(found["time_percent"] > 100, "row {}: {}% of the time", rows["time"])
    return found.assign(instances=instances.astype("int64"))


def _refuse(wrong: pd.Series, reason: str, *cells: pd.Series) -> None:
    """Raises InvalidFile for the first line that is wrong, with what its cells say."""
    if wrong.any():
        line = wrong.index[wrong][0]
        raise InvalidFile(reason.format(line, *(column[line] for column in cells)))


def _named(table: Table, column: str, count: str = "instances") -> pd.DataFrame:
    found = _figures(table, count).assign(name=table.rows[column])
    _refuse(found["name"] == "", "row {} has no name")
    return found


def _kernels(table: Table) -> pd.DataFrame:
    """The kernels of a table, with all figures that it has."""
    found = _named(table, "operation" if table.report == "cuda_gpu_sum" else "name")
    if table.report == "cuda_gpu_trace":
        return summed(found.assign(stage=None))
    if "category" in table.rows:
        found = found[table.rows["category"] != "CUDA_API"]
    if table.report == "cuda_gpu_kern_gb_sum":
        found = _without_shapes(found)
    return found


def _without_shapes(found: pd.DataFrame) -> pd.DataFrame:
    """Rows of one name, which a table by grid and block has, as one."""
    groups = found.groupby("name", sort=False)
    one = groups["name"].transform("size") == 1
    how = {"total_ns": "sum", "instances": "sum", "min_ns": "min", "max_ns": "max", "time_percent": "sum"}
    joined = groups.agg({name: of for name, of in how.items() if name in found}).reset_index()
    joined["avg_ns"] = joined["total_ns"] / joined["instances"]
    alone = found[one].set_index("name")
    for name in ("med_ns", "stddev_ns"):
        joined[name] = joined["name"].map(alone[name]) if name in alone else np.nan
    return joined


def _stages(table: Table) -> tuple[list[Row], str]:
    """Times of the stages that ranges are named after, and a sentence on the ranges that are none."""
    found = _named(table, "range")
    deviations = found.get("stddev_ns", pd.Series(np.nan, found.index))
    rows: list[Row] = []
    others: list[str] = []
    for name, total, calls, deviation in zip(
        found["name"], found["total_ns"], found["instances"], deviations, strict=True
    ):
        if (stage := stage_of_range(name)) is None:
            others.append(paired(name)[:40])
        else:
            rows += timing_rows(
                BACKEND, stage, total / calls, None if np.isnan(deviation) else deviation, int(calls)
            )
    named = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    if not rows:
        return [], f"no range of it is a stage ({', '.join(all_stages())}): {named}"
    return rows, f"Ranges that are no stage of this project: {named}." if others else ""


def _calls(table: Table) -> list[Row]:
    """Calls of the host, how often and how long each, as `reported` has them."""
    _refuse(~_is_host(table), "row {}: {:.40} is no call of CUDA", table.rows["name"])
    found = _named(table, "name", "calls")
    rows: list[Row] = []
    for name, total, count in zip(found["name"], found["total_ns"], found["instances"], strict=True):
        of = {"subject": name, "statistic": "total"}
        rows.append(of | {"figure": "calls", "value": float(count), "unit": None})
        rows.append(of | {"figure": "time", "value": total / 1e6, "unit": "ms"})
    return rows


def shares_note(found: pd.DataFrame) -> str:
    """A sentence when the kernels' own shares say that rows are missing; empty when they are whole."""
    shares = found.get("time_percent", pd.Series(np.nan, found.index))
    if found.empty or shares.isna().any() or abs(100 - shares.sum()) <= 0.05 * len(found) + 0.1:
        return ""
    return f"The kernels' shares add up to {shares.sum():.1f}%: the list is not whole."

"""Nsight Systems: tables that `nsys stats --format csv` writes, of 2020 to 2026, one or several in a file.

Every time in them carries the profiler's overhead, so whatever holds one is a profiled run. A table is taken
whole or not at all: a row whose average is not its total over its instances has nothing to give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import paired
from dsocr_core.models.family import all_stages
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles
from dsocr_core.runs.importers.stages import kernel_rows, stage_of_range, summed, timing_rows
from dsocr_core.runs.importers.tables import Table, figures, find_tables

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
_COLUMNS = {**_TIMES, "instances": "instances", "calls": "instances", "time": "time_percent"}
_KERNELS = ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_sum", "cuda_gpu_trace")
_RANGES = ("nvtx_pushpop_sum", "nvtx_sum", "nvtx_gpu_proj_sum")
_CALLS = ("cuda_api_sum",)
"""Reports by what they hold; of those with the same the first is taken."""
_HOST_CALL = r"cu[A-Z]|cuda[A-Z]"


def read_tables(
    files: RunFiles, content: bytes, tables: Sequence[Table], unread: Sequence[str]
) -> ImportedRun:
    """The reports of a file, as one run that knows nothing else. Raises InvalidFile.

    `unread` are the names of further reports in the file.
    """
    # osrt_sum and syscall_sum, which stand in a file of all reports, have the columns of cuda_api_sum.
    of_system = [table for table in tables if table.report in _CALLS and not _is_host(table).any()]
    of = _by_report([table for table in tables if not any(table is each for each in of_system)])
    kernels, ranges, calls = (
        next((of[name] for name in names if name in of), None) for names in (_KERNELS, _RANGES, _CALLS)
    )
    found = _kernels(kernels) if kernels else None
    stages, other_ranges = _stages(ranges) if ranges else ([], "")
    rows = {
        "kernels": [] if found is None else kernel_rows(found),
        "timings": stages,
        "reported": _calls(calls) if calls else [],
    }
    taken = [table.report for table in (kernels, ranges, calls) if table]
    left_out = [*unread, *(report for report in of if report not in taken)]
    left_out += ["osrt_sum"] if of_system and "osrt_sum" not in left_out else []
    if not any(rows.values()):
        raise InvalidFile(
            other_ranges
            or f"no report of it is read ({', '.join(left_out)}): give cuda_gpu_kern_sum or nvtx_sum"
        )
    notes = [f"Nsight Systems ({', '.join(each for each in of if each in taken)}) in {files.name}."]
    notes += [other_ranges, "" if found is None else shares_note(found)]
    notes += [f"Not taken of it: {', '.join(left_out)[:300]}."] if left_out else []
    tables_found = {name: each for name, each in rows.items() if each}
    run = files.profile("nsys", " ".join(filter(None, notes)), tables_found)
    return replace(run, files={f"imported/{KERNEL_SUMMARY}": content})


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


def _figures(table: Table, name: str) -> pd.DataFrame:
    """The names of a table, its times in ns, instances and shares, by line. Raises InvalidFile."""
    texts = table.rows[[column for column in _COLUMNS if column in table.rows]]
    long = texts.melt(ignore_index=False)
    units = long["variable"].map({"time": "%", "instances": "count", "calls": "count"})
    plain = figures(long["value"], units, {"count"}).to_numpy().reshape(texts.shape, order="F")
    plain = pd.DataFrame(plain, texts.index, texts.columns).rename(columns=_COLUMNS)
    texts = texts.rename(columns=_COLUMNS)
    usual = next((_NS[unit] for unit in table.units.values() if unit in _NS), 1.0)
    worth = {to: _NS.get(table.units.get(column, ""), usual) for column, to in _TIMES.items() if to in texts}
    found = plain.apply(pd.to_numeric, errors="coerce")
    for column in found:
        wrong = (found[column].isna() & (texts[column] != "")) | ~found[column].fillna(0).between(0, 1e18)
        _refuse(wrong, "row {}: '{:.40}' is not a number", texts[column])
    printed = plain.apply(lambda cells: 10.0 ** -cells.str.partition(".")[2].str.len())
    """Worth of one in the last digit."""
    for column, factor in worth.items():
        found[column], printed[column] = found[column] * factor, printed[column] * factor
    if "took" in found:
        _refuse(found["took"].isna(), "row {} has no time")
    else:
        total, instances = found["total_ns"], found["instances"]
        _refuse(total.isna(), "row {} has no total time")
        is_count = (instances % 1 == 0) & (instances <= 1e15)
        _refuse(~is_count, "row {}: '{:.40}' is not a whole number", texts["instances"])
        _refuse(instances < 1, "row {}: a kernel that ran {:.40} times", texts["instances"])
        if "avg_ns" in found:
            bound = np.maximum(printed["avg_ns"] + printed["total_ns"] / instances, 1e-6 * total / instances)
            off = (found["avg_ns"] - total / instances).abs() > bound
            said = [texts[column] for column in ("avg_ns", "total_ns", "instances")]
            _refuse(off, "row {}: the average {} is not {} over {}", *said)
        if "time_percent" in found:
            _refuse(found["time_percent"] > 100, "row {}: {}% of the time", texts["time_percent"])
        found["instances"] = instances.astype("int64")
    found["name"] = table.rows[name]
    _refuse(found["name"] == "", "row {} has no name")
    return found


def _refuse(wrong: pd.Series, reason: str, *cells: pd.Series) -> None:
    """Raises InvalidFile for the first line that is wrong, with what its cells say."""
    if wrong.any():
        line = wrong.index[wrong][0]
        raise InvalidFile(reason.format(line, *(column[line] for column in cells)))


def _kernels(table: Table) -> pd.DataFrame:
    """The kernels of a table, with all figures that it has."""
    found = _figures(table, "operation" if table.report == "cuda_gpu_sum" else "name")
    if table.report == "cuda_gpu_trace":
        return summed(found.assign(stage=None))
    if "category" in table.rows:
        found = found[table.rows["category"] != "CUDA_API"]
    return _without_shapes(found) if table.report == "cuda_gpu_kern_gb_sum" else found


def _without_shapes(found: pd.DataFrame) -> pd.DataFrame:
    """Rows of one name, which a table by grid and block has, as one."""
    groups = found.groupby("name", sort=False)
    how = {"total_ns": "sum", "instances": "sum", "min_ns": "min", "max_ns": "max", "time_percent": "sum"}
    how |= {"med_ns": "first", "stddev_ns": "first"}
    joined = groups.agg({name: of for name, of in how.items() if name in found})
    of_one = [name for name in ("med_ns", "stddev_ns") if name in found]
    joined[of_one] = joined[of_one].where(groups.size() == 1)
    joined["avg_ns"] = joined["total_ns"] / joined["instances"]
    return joined.reset_index()


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
        return [], f"no range of it is a stage ({', '.join(all_stages())}): {named}"
    return rows, f"Ranges that are no stage of this project: {named}." if others else ""


def _calls(table: Table) -> list[Row]:
    """Calls of the host, how often and how long each, as `reported` has them."""
    _refuse(~_is_host(table), "row {}: {:.40} is no call of CUDA", table.rows["name"])
    found = _figures(table, "name")
    rows: list[Row] = []
    for name, total, count in zip(found["name"], found["total_ns"], found["instances"], strict=True):
        of = {"subject": name, "statistic": "total"}
        rows.append(of | {"figure": "calls", "value": float(count), "unit": None})
        rows.append(of | {"figure": "time", "value": total / 1e6, "unit": "ms"})
    return rows


def shares_note(found: pd.DataFrame) -> str:
    """A sentence when the kernels' own shares say that rows are missing; empty when they are whole."""
    shares = found["time_percent"] if "time_percent" in found else pd.Series(dtype=float)
    if shares.empty or shares.isna().any() or abs(100 - shares.sum()) <= 0.05 * len(found) + 0.1:
        return ""
    return f"The kernels' shares add up to {shares.sum():.1f}%: the list is not whole."

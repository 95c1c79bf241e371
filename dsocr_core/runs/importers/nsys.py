"""Nsight Systems: tables that `nsys stats --format csv` writes, of 2020 to 2026, one or several in a file.

A report is known by its columns, whatever the version calls it: cuda_gpu_kern_sum (gpukernsum), its form by
grid and block, cuda_gpu_sum and cuda_gpu_trace give kernels; nvtx_sum, nvtx_pushpop_sum and nvtx_gpu_proj_sum
the stages whose names are NVTX ranges; cuda_api_sum what the host called. Every time in them carries the
profiler's overhead, so whatever holds one is a profiled run. A table is taken whole or not at all: a file cut
in the middle of a row, or a row whose average is not its total over its instances, has nothing to give.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import Stage
from dsocr_core.runs.importers.imported import ImportedRun, Row, content_id
from dsocr_core.runs.importers.launches import Kernel, kernel_rows, stage_of_range, summed, timing_rows
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    TABLE_LIMIT,
    Head,
    as_text,
    clean,
    digest,
    file_time,
)
from dsocr_core.runs.record import RunRecord

KERNEL_SUMMARY = "summary_cuda_gpu_kern_sum.csv"
BACKEND = "nsys"
"""Backend that the stages of a profile are said to be of: the profiled program itself is not known."""
_NS = {
    "ns": 1.0, "nsec": 1.0, "us": 1e3, "μs": 1e3, "µs": 1e3, "usec": 1e3, "ms": 1e6, "msec": 1e6,
    "s": 1e9, "sec": 1e9,
}  # fmt: skip
_NAMES = {
    "average": "avg", "proj avg": "avg", "median": "med", "proj med": "med", "minimum": "min",
    "proj min": "min",
    "maximum": "max", "proj max": "max", "proj stddev": "stddev", "range instances": "instances",
    "total proj time": "total time", "num calls": "calls", "grdx": "grid",
}  # fmt: skip
"""Names of columns in some report or version, and here."""
_COLUMN = re.compile(r"\s*(.*?)\s*(?:\(([^()]*)\))?\s*")
_SAID = ("Processing [", "Generating ", "Exporting ", "Using ", "NOTICE", "SKIPPED", "WARNING", "ERROR", "**")
"""Begin of lines in which nsys speaks of itself."""
_LONG = {"-c": "--capture-range", "-p": "--nvtx-capture"}
_MOST_LINES_OF_A_ROW = 50
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_HOST_CALL = re.compile(r"cu[A-Z]|cuda[A-Z]")


@dataclass(frozen=True)
class Report:
    """A report of `nsys stats`, and the columns that tell it from the others."""

    name: str
    columns: frozenset[str]


REPORTS = tuple(
    Report(name, frozenset(columns.split(",")))
    for name, columns in (
        ("cuda_gpu_kern_gb_sum", "total time,instances,gridxyz,blockxyz,name"),
        ("nvtx_gpu_proj_sum", "total time,instances,total range time,range"),
        ("nvtx_sum", "total time,instances,style,range"),
        ("nvtx_pushpop_sum", "total time,instances,range"),
        ("cuda_gpu_sum", "total time,instances,category,operation"),
        ("cuda_gpu_kern_sum", "total time,instances,name"),
        ("cuda_api_sum", "total time,calls,name"),
        ("cuda_gpu_trace", "start,duration,grid,name"),
    )
)
"""Those that are read; the first whose columns are there is meant."""


@dataclass(frozen=True)
class Table:
    """A report's rows by column, with what a unit of each column is in nanoseconds."""

    report: str
    units: Mapping[str, float]
    rows: tuple[tuple[int, Mapping[str, str]], ...]
    """Each with its line."""

    @property
    def values(self) -> list[Mapping[str, str]]:
        """The rows, wherever they stand."""
        return [row for _, row in self.rows]


def is_table(head: Head) -> bool:
    """Tell whether a text holds the head of a report that is read."""
    return any(_report_of(_names(line)) for line in head.lines)


def read_file(file: Path) -> list[ImportedRun]:
    """The reports of a file, as one run that knows nothing else. Raises InvalidFile."""
    content = read_bytes(file, TABLE_LIMIT)
    found = tables(as_text(content))
    rows: dict[str, tuple[Row, ...]] = {}
    of = _by_report(found)
    by_name = _kernel_table(of)
    found_kernels = () if by_name is None else _kernels(by_name)
    ranges = next((of[name] for name in _RANGES if name in of), None)
    if found_kernels:
        rows["kernels"] = kernel_rows(found_kernels, None)
    left = ""
    if ranges is not None:
        timings, left = _stages(ranges)
        rows |= {"timings": timings} if timings else {}
    if "cuda_api_sum" in of:
        rows["reported"] = _calls(of["cuda_api_sum"])
    if not any(rows.values()):
        raise InvalidFile(left or "no kernel, no stage and no call in it")
    reports = ", ".join(dict.fromkeys(table.report for table in found))
    notes = [f"Nsight Systems ({reports}) in {clean(file.name)[:200]}.", left, FILE_TIME_NOTE]
    notes.append(shares_note(found_kernels) or "")
    record = RunRecord(
        id=content_id("nsys", {KERNEL_SUMMARY: digest(content)}),
        created=file_time(file),
        source="nsys",
        backends=(BACKEND,) if "timings" in rows else (),
        profiled=True,
        notes=" ".join(filter(None, notes)),
    )
    return [ImportedRun(record, file, rows, {f"imported/{KERNEL_SUMMARY}": content})]


def _by_report(found: Iterable[Table]) -> dict[str, Table]:
    """Raises InvalidFile where one report has two tables that say different things."""
    of: dict[str, Table] = {}
    for table in found:
        first = of.setdefault(table.report, table)
        if first.units != table.units or first.values != table.values:
            raise InvalidFile(
                f"{table.report} stands in it twice, of two profiles: give each a file of its own"
            )
    return of


_KERNELS = ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_sum", "cuda_gpu_trace")


def _kernel_table(of: Mapping[str, Table]) -> Table | None:
    return next((of[name] for name in _KERNELS if name in of), None)


_RANGES = ("nvtx_pushpop_sum", "nvtx_sum", "nvtx_gpu_proj_sum")
"""Ranges, of which in a file the first that is there is taken."""


def kernels(text: str) -> tuple[Kernel, ...]:
    """The kernels of a summary's text in its order. Raises InvalidFile."""
    if (table := _kernel_table(_by_report(tables(text)))) is not None:
        return _kernels(table)
    raise InvalidFile("not a kernel summary: its columns are not those of cuda_gpu_kern_sum")


# --- tables -----------------------------------------------------------------------------------------


def tables(text: str) -> list[Table]:
    """The reports of a text, in its order. Raises InvalidFile: there is none, or one is broken."""
    found: list[Table] = []
    lines = iter(enumerate(text.split("\n"), start=1))
    for _, line in lines:
        while (report := _report_of(_names(line))) is not None:
            table, line = _table(report, line, lines)
            if not table.rows:
                raise InvalidFile(f"{report}: a header and no rows")
            found.append(table)
    # osrt_sum and syscall_sum, which stand in a file of all reports, have the columns of cuda_api_sum.
    found = [table for table in found if not _is_of_system(table)] or found
    if not found:
        raise InvalidFile(
            "no report of nsys stats that is read: give cuda_gpu_kern_sum, cuda_gpu_sum or nvtx_sum"
        )
    return found


def _is_of_system(table: Table) -> bool:
    return table.report == "cuda_api_sum" and not any(_HOST_CALL.match(row["name"]) for _, row in table.rows)


def _table(report: str, head: str, lines: Iterator[tuple[int, str]]) -> tuple[Table, str]:
    """A report's table, and the line after it."""
    names, mark = _names(head), _mark(head)
    rows: list[tuple[int, Mapping[str, str]]] = []
    after = ""
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith(_SAID) or _report_of(_names(line)):
            after = line
            break
        for _ in range(_MOST_LINES_OF_A_ROW):
            if not line.count('"') % 2:
                break
            line += "\n" + next(lines, (0, ""))[1]
        try:
            (cells,) = csv.reader([line], delimiter=mark, strict=True)
        except (csv.Error, ValueError) as error:
            raise InvalidFile(f"not whole: row {number}: {error}") from error
        if len(cells) != len(names):
            raise InvalidFile(f"not whole: row {number} has {len(cells)} of {len(names)} cells")
        plain = (cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell.strip() for cell in cells)
        rows.append((number, dict(zip(names, plain, strict=True))))
    return Table(report, dict(zip(names, _units(head), strict=True)), tuple(rows)), after


def _report_of(names: Sequence[str]) -> str | None:
    there = set(names)
    # A source is what only the events of MPI have, in a table that else looks as one of kernels.
    if len(there) < len(names) or "source" in there:
        return None
    return next((report.name for report in REPORTS if report.columns <= there), None)


def _mark(head: str) -> str:
    return "\t" if "\t" in head else ","


def _columns(head: str) -> list[tuple[str, str]]:
    """Names and units of a head's columns; none where it cannot be one."""
    if len(head) > 2000 or not ("(" in head or "Name" in head):
        return []
    try:
        (cells,) = csv.reader([head], delimiter=_mark(head), strict=True)
    except (csv.Error, ValueError):
        return []
    matches = [_COLUMN.fullmatch(cell) for cell in cells if cell]
    return [(match[1].lower(), match[2] or "") for match in matches if match]


def _names(head: str) -> list[str]:
    return [_NAMES.get(name, name) for name, _ in _columns(head)]


def _units(head: str) -> list[float]:
    """Nanoseconds of each column's unit; one without is in that of the total, as older versions print it."""
    units = [_NS.get(unit) for _, unit in _columns(head)]
    usual = next((unit for unit in units if unit is not None), 1.0)
    return [usual if unit is None else unit for unit in units]


# --- rows -------------------------------------------------------------------------------------------


def _kernels(table: Table) -> tuple[Kernel, ...]:
    if table.report == "cuda_gpu_trace":
        return _traced(table)
    column = "operation" if table.report == "cuda_gpu_sum" else "name"
    found = tuple(
        _summed(table, row, line, column) for line, row in table.rows if row.get("category") != "CUDA_API"
    )
    return _joined(found) if table.report == "cuda_gpu_kern_gb_sum" else found


def _summed(table: Table, row: Mapping[str, str], line: int, column: str, count: str = "instances") -> Kernel:
    times = {
        name: _time(table, row, name, line) for name in ("total time", "avg", "med", "min", "max", "stddev")
    }
    name, total, percent = row[column], times["total time"], _decimal(row.get("time", ""), line)
    instances = _whole(row[count], line)
    if not name:
        raise InvalidFile(f"row {line} has no name")
    if instances < 1:
        raise InvalidFile(f"row {line}: a kernel that ran {instances} times")
    if total is None:
        raise InvalidFile(f"row {line} has no total time")
    if (average := times["avg"]) is not None:
        exact = total / instances
        printed = _last_digit(row["avg"]) * table.units["avg"]
        printed += _last_digit(row["total time"]) * table.units["total time"] / instances
        if abs(average - exact) > max(printed, 1e-6 * exact):
            raise InvalidFile(
                f"row {line}: the average {row['avg']} is not {row['total time']} over {instances}"
            )
    if percent is not None and percent > 100:
        raise InvalidFile(f"row {line}: {percent}% of the time")
    return Kernel(
        name, total, instances, percent, average, times["med"], times["min"], times["max"], times["stddev"]
    )


def _joined(found: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """Rows of one name, which a table by grid and block has, as one."""
    groups: dict[str, list[Kernel]] = {}
    for kernel in found:
        groups.setdefault(kernel.name, []).append(kernel)
    return tuple(rows[0] if len(rows) == 1 else _sum_of(name, rows) for name, rows in groups.items())


def _sum_of(name: str, rows: Sequence[Kernel]) -> Kernel:
    total, instances = math.fsum(row.total_ns for row in rows), sum(row.instances for row in rows)
    shares = [row.time_percent for row in rows if row.time_percent is not None]
    least = [row.min_ns for row in rows if row.min_ns is not None]
    most = [row.max_ns for row in rows if row.max_ns is not None]
    share = math.fsum(shares) if len(shares) == len(rows) else None
    return Kernel(
        name, total, instances, share, total / instances, None,
        min(least) if len(least) == len(rows) else None, max(most) if len(most) == len(rows) else None, None,
    )  # fmt: skip


def _traced(table: Table) -> tuple[Kernel, ...]:
    """The kernels and copies of a list of all that ran, summed by name."""
    times: dict[str, list[float]] = {}
    for line, row in table.rows:
        if (duration := _time(table, row, "duration", line)) is None or not row["name"]:
            raise InvalidFile(f"row {line} has no time or no name")
        times.setdefault(row["name"], []).append(duration)
    return summed(times)


def _stages(table: Table) -> tuple[tuple[Row, ...], str]:
    """Times of the stages that ranges are named after, and a sentence on the ranges that are none."""
    rows: list[Row] = []
    others: list[str] = []
    for line, row in table.rows:
        of = _summed(table, row, line, "range")
        if (stage := stage_of_range(of.name)) is None:
            others.append(of.name)
        else:
            rows += timing_rows(BACKEND, stage, of.total_ns / of.instances, of.stddev_ns, of.instances)
    named = ", ".join(clean(name)[:40] for name in others[:3])
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    left = f"Ranges that are no stage of this project: {named}{more}." if others else ""
    if not rows:
        return (), f"no range of it is a stage ({', '.join(all_stages())}): {named}{more}"
    return tuple(rows), left


def _calls(table: Table) -> tuple[Row, ...]:
    """Calls of the host: how often and how long each, as `reported` has them."""
    rows: list[Row] = []
    for line, row in table.rows:
        of = _summed(table, row, line, "name", "calls")
        if not _HOST_CALL.match(of.name):
            raise InvalidFile(f"row {line}: {of.name[:40]} is no call of CUDA: give cuda_api_sum")
        for figure, value, unit in (("calls", of.instances, None), ("time", of.total_ns / 1e6, "ms")):
            rows.append(
                {"subject": of.name, "figure": figure, "statistic": "total", "value": value, "unit": unit}
            )
    return tuple(rows)


def shares_note(found: tuple[Kernel, ...]) -> str | None:
    """A sentence when the rows' own shares say that rows are missing; None when they are whole."""
    shares = [kernel.time_percent for kernel in found if kernel.time_percent is not None]
    stated = math.fsum(shares)
    rounding = 0.05 * len(found) + 0.1
    if not found or len(shares) < len(found) or abs(100 - stated) <= rounding:
        return None
    return f"The kernels' shares add up to {stated:.1f}%: the list is not whole."


def read_command(text: str) -> str:
    """The command line in a `cmd.txt`. Raises InvalidFile for a text that is none of Nsight's."""
    command = " ".join(text.split())
    if not command.startswith(("nsys ", "ncu ")):
        raise InvalidFile("not a command line of nsys or ncu")
    return command


def captured_stage(command: str) -> Stage | None:
    """The stage whose NVTX range alone was captured, by `nsys profile`'s command line; None for all."""
    options: dict[str, str] = {}
    words = command.split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        options.setdefault(_LONG.get(name, name), following if name in _LONG else value)
    if options.get("--capture-range") != "nvtx":
        return None
    return stage_of_range(options.get("--nvtx-capture", ""))


# --- figures ----------------------------------------------------------------------------------------


def _time(table: Table, row: Mapping[str, str], name: str, line: int) -> float | None:
    """A time of a row in ns, None where the table or the row has none."""
    value = _decimal(row.get(name, ""), line)
    return None if value is None else value * table.units[name]


def _whole(cell: str, line: int) -> int:
    # 15 digits: the table holds doubles.
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 15):
        raise InvalidFile(f"row {line}: '{cell[:40]}' is not a whole number")
    return int(cell)


def _decimal(cell: str, line: int) -> float | None:
    """A plain decimal number: `float` would also take `1_0`, `nan` and digits of other scripts."""
    if cell == "":
        return None
    before, point, after = cell.partition(".")
    if not (cell.isascii() and before.isdigit() and (after.isdigit() or not point) and len(cell) <= 40):
        raise InvalidFile(f"row {line}: '{cell[:40]}' is not a number")
    return float(cell)


def _last_digit(cell: str) -> float:
    """Work out what one of the last digit of a printed number is worth."""
    return float(10.0 ** -len(cell.partition(".")[2]))

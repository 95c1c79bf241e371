"""Nsight Systems: the kernel summary that `nsys stats --report cuda_gpu_kern_sum --format csv` writes.

Every time in it carries the profiler's overhead on the launching side, so whatever holds one is a
profiled run. The table is taken whole or not at all: a file cut in the middle of a row, or a row whose
average is not its total over its instances, has no kernels to give.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from dsocr_core.history.importers.imported import ImportedRun, Row, content_id
from dsocr_core.history.importers.reading import (
    FILE_TIME_NOTE,
    TABLE_LIMIT,
    as_text,
    clean,
    digest,
    file_time,
)
from dsocr_core.history.record import RunRecord
from dsocr_core.models.family import all_stages
from dsocr_core.outside.untrusted import Refused, read_bytes
from dsocr_core.stages import Stage

KERNEL_SUMMARY = "summary_cuda_gpu_kern_sum.csv"
COLUMNS = (
    "Time (%)",
    "Total Time (ns)",
    "Instances",
    "Avg (ns)",
    "Med (ns)",
    "Min (ns)",
    "Max (ns)",
    "StdDev (ns)",
    "Name",
)
_LONG = {"-c": "--capture-range", "-p": "--nvtx-capture"}
_PRINTED_DIGITS = 0.1
"""The averages are printed with one decimal."""


@dataclass(frozen=True)
class Kernel:
    """One row. Times in nanoseconds over all instances; None where the cell is empty."""

    name: str
    total_ns: int
    instances: int
    time_percent: float | None
    avg_ns: float | None
    med_ns: float | None
    min_ns: float | None
    max_ns: float | None
    stddev_ns: float | None


def is_kernel_summary(text: str) -> bool:
    """Whether a text begins with the header of a kernel summary."""
    return _cells(text.partition("\n")[0]) == COLUMNS


def kernels(text: str) -> tuple[Kernel, ...]:
    """The kernels of a summary's text in its order. Raises Refused."""
    if not is_kernel_summary(text):
        raise Refused("not a kernel summary: its columns are not those of cuda_gpu_kern_sum")
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise Refused(f"not whole: {error}") from error
    found = tuple(_kernel(row, number) for number, row in enumerate(rows[1:], start=2) if row)
    if not found:
        raise Refused("a header and no kernels")
    return found


def read_summary_file(file: Path) -> ImportedRun:
    """A kernel summary that lies by itself, as a run that knows nothing but its kernels. Raises Refused."""
    content = read_bytes(file, TABLE_LIMIT)
    found = kernels(as_text(content))
    notes = [f"Kernel summary {clean(file.name)[:200]}.", FILE_TIME_NOTE, shares_note(found)]
    record = RunRecord(
        id=content_id("nsys", {KERNEL_SUMMARY: digest(content)}),
        created=file_time(file),
        source="nsys",
        profiled=True,
        notes=" ".join(note for note in notes if note),
    )
    return ImportedRun(
        record, file, {"kernels": kernel_rows(found, None)}, {f"imported/{KERNEL_SUMMARY}": content}
    )


def kernel_rows(found: tuple[Kernel, ...], stage: Stage | None) -> tuple[Row, ...]:
    """The kernels as rows of the history's table; `stage` None when several ran as one."""
    return tuple({"stage": stage.value if stage else None, **asdict(kernel)} for kernel in found)


def shares_note(found: tuple[Kernel, ...]) -> str | None:
    """A sentence when the rows' own shares say that rows are missing; None when they are whole."""
    shares = [kernel.time_percent for kernel in found if kernel.time_percent is not None]
    stated = math.fsum(shares)
    rounding = 0.05 * len(found) + 0.1
    if not found or len(shares) < len(found) or abs(100 - stated) <= rounding:
        return None
    return f"The kernels' shares add up to {stated:.1f}%: the list is not whole."


def read_command(text: str) -> str:
    """The command line in a `cmd.txt`. Raises Refused for a text that is none of Nsight's."""
    command = " ".join(text.split())
    if not command.startswith(("nsys ", "ncu ")):
        raise Refused("not a command line of nsys or ncu")
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


def stage_of_range(name_range: str) -> Stage | None:
    """The stage of an NVTX range `name` or `name@domain`, None for one that is not ours to name."""
    name = name_range.partition("@")[0].strip().lower()
    return next((stage for stage in all_stages() if stage.value == name), None)


def _kernel(row: list[str], line: int) -> Kernel:
    if len(row) != len(COLUMNS):
        raise Refused(f"row {line} has {len(row)} of {len(COLUMNS)} cells")
    percent, total, instances, avg, med, low, high, deviation, name = row
    kernel = Kernel(
        name=name,
        total_ns=_integer(total, line),
        instances=_integer(instances, line),
        time_percent=_decimal(percent, line),
        avg_ns=_decimal(avg, line),
        med_ns=_decimal(med, line),
        min_ns=_decimal(low, line),
        max_ns=_decimal(high, line),
        stddev_ns=_decimal(deviation, line),
    )
    if not name.strip():
        raise Refused(f"row {line} names no kernel")
    if kernel.instances < 1:
        raise Refused(f"row {line}: a kernel that ran {kernel.instances} times")
    if kernel.avg_ns is not None:
        average = kernel.total_ns / kernel.instances
        if abs(kernel.avg_ns - average) > max(_PRINTED_DIGITS, 1e-6 * average):
            raise Refused(f"row {line}: the average {avg} ns is not {total} ns over {instances}")
    if kernel.time_percent is not None and kernel.time_percent > 100:
        raise Refused(f"row {line}: {percent}% of the time")
    return kernel


def _integer(cell: str, line: int) -> int:
    # 15 digits: the table holds doubles.
    if not (cell.isascii() and cell.isdigit() and len(cell) <= 15):
        raise Refused(f"row {line}: '{cell[:40]}' is not a whole number")
    return int(cell)


def _decimal(cell: str, line: int) -> float | None:
    """A plain decimal number: `float` would also take `1_0`, `nan` and digits of other scripts."""
    if cell == "":
        return None
    before, point, after = cell.partition(".")
    if not (cell.isascii() and before.isdigit() and (after.isdigit() or not point) and len(cell) <= 40):
        raise Refused(f"row {line}: '{cell[:40]}' is not a number")
    return float(cell)


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().split(","))

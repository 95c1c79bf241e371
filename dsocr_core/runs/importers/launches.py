"""Kernels and stages of a profile as rows of the history, whichever program made it."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import TOP_LEVEL, Stage
from dsocr_core.runs.importers.imported import Row

KERNEL_LIMIT = 100_000
"""Names of kernels in a profile; a million would take minutes and 2 GB."""
_OPEN_AT_ONCE = 64
"""Ranges of stages that may be open in one another."""


@dataclass(frozen=True)
class Kernel:
    """All launches of one name. Times in nanoseconds; None where they are not known."""

    name: str
    total_ns: float
    instances: int
    time_percent: float | None
    avg_ns: float | None
    med_ns: float | None
    min_ns: float | None
    max_ns: float | None
    stddev_ns: float | None


def summed(times: Mapping[str, Sequence[float]]) -> tuple[Kernel, ...]:
    """Kernels from the times of their launches by name, in ns, the one that took most first."""
    whole = math.fsum(map(math.fsum, times.values())) or 1.0
    found = [
        Kernel(
            name, math.fsum(each), len(each), 100 * math.fsum(each) / whole, math.fsum(each) / len(each),
            statistics.median(each), min(each), max(each), statistics.stdev(each) if len(each) > 1 else 0.0,
        )
        for name, each in times.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda kernel: -kernel.total_ns))


def kernel_rows(found: Sequence[Kernel], stage: Stage | None) -> tuple[Row, ...]:
    """The kernels as rows of the history's table; `stage` is None when several ran. Raises InvalidFile."""
    if len(found) > KERNEL_LIMIT:
        raise InvalidFile(f"more than {KERNEL_LIMIT:,} kernels by name")
    return tuple({"stage": stage.value if stage else None, **asdict(kernel)} for kernel in found)


def timing_rows(
    backend: str, stage: Stage, mean_ns: float, deviation_ns: float | None, calls: int
) -> list[Row]:
    """A stage's mean and deviation over the pages of a profile, as rows of `timings`."""
    of = {"backend": backend, "stage": stage.value, "inside_prefill": stage not in TOP_LEVEL, "calls": calls}
    rows: list[Row] = [of | {"milliseconds": mean_ns / 1e6, "aggregate": "mean"}]
    if deviation_ns is not None and calls > 1:
        rows.append(of | {"milliseconds": deviation_ns / 1e6, "aggregate": "std"})
    return rows


def stage_of_range(name_range: str) -> Stage | None:
    """The stage of an NVTX range `name`, `name@domain` or `domain:name`; None for any other."""
    name = name_range.partition("@")[0].rpartition(":")[2].strip().lower()
    return next((stage for stage in all_stages() if stage.value == name), None)


class Launches:
    """Ranges of stages on the threads of a profile, and kernels that were launched in them. Times in ns."""

    def __init__(self) -> None:
        self._ranges: dict[object, list[tuple[float, float, Stage]]] = {}
        self._begins: dict[object, list[float]] = {}
        self._kernels: dict[Stage | None, dict[str, list[float]]] = {}
        self._work: dict[tuple[object, float, float, Stage], tuple[float, float]] = {}

    def add_range(self, thread: object, start: float, end: float, stage: Stage) -> None:
        self._ranges.setdefault(thread, []).append((start, end, stage))
        self._begins.clear()

    def add_kernel(self, name: str, took: float, stage: Stage | None) -> None:
        self._kernels.setdefault(stage, {}).setdefault(name, []).append(took)

    def add_work(self, thread: object, moment: float, start: float, end: float) -> Stage | None:
        """Add what ran on the device from `start` to `end` to the ranges that launched it.

        Returns the stage of the innermost.
        """
        open_ = list(self._open_at(thread, moment))
        for range_ in open_:
            first, last = self._work.get((thread, *range_), (start, end))
            self._work[(thread, *range_)] = min(first, start), max(last, end)
        return open_[0][2] if open_ else None

    def stage_at(self, thread: object, moment: float) -> Stage | None:
        """The stage of the innermost range that was open on a thread."""
        return next((stage for _, _, stage in self._open_at(thread, moment)), None)

    def _open_at(self, thread: object, moment: float) -> Iterator[tuple[float, float, Stage]]:
        """Ranges that were open on a thread, the innermost first."""
        ranges = self._ranges.get(thread)
        if not ranges:
            return
        if thread not in self._begins:
            ranges.sort(key=lambda each: (each[0], -each[1]))
            self._begins[thread] = [start for start, _, _ in ranges]
        last = bisect_right(self._begins[thread], moment)
        yield from (
            each for each in reversed(ranges[max(0, last - _OPEN_AT_ONCE) : last]) if each[1] >= moment
        )

    def tables(
        self, backend: str, threads: Sequence[object], on_device: Sequence[object] = ()
    ) -> dict[str, tuple[Row, ...]]:
        """Rows of `kernels`, and of `timings` from the ranges on these threads; no table without rows.

        A stage with as many ranges `on_device`, or work of each range, took what that took: the host only
        queued it.
        """
        took, of_device = self._took(threads), self._took(on_device)
        for (*_, stage), (start, end) in self._work.items():
            of_device.setdefault(stage, []).append(end - start)
        for stage, times in of_device.items():
            if stage is not Stage.PREPROCESS and len(times) == len(took.get(stage, times)):
                took[stage] = times
        kernels = [row for stage, times in self._kernels.items() for row in kernel_rows(summed(times), stage)]
        timings: list[Row] = []
        for stage, times in took.items():
            deviation = statistics.stdev(times) if len(times) > 1 else None
            timings += timing_rows(backend, stage, math.fsum(times) / len(times), deviation, len(times))
        return {name: tuple(rows) for name, rows in (("kernels", kernels), ("timings", timings)) if rows}

    def _took(self, threads: Sequence[object]) -> dict[Stage, list[float]]:
        took: dict[Stage, list[float]] = {}
        for thread in threads:
            for start, end, stage in self._ranges.get(thread, ()):
                took.setdefault(stage, []).append(end - start)
        return took

    @property
    def threads(self) -> tuple[object, ...]:
        return tuple(self._ranges)

"""Kernels and stages of a profile as rows of the history, whichever program made it. Times in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import TOP_LEVEL, Stage
from dsocr_core.runs.importers.imported import Row

KERNEL_LIMIT = 100_000
"""Names of kernels in a profile."""
NO_STAGE = -1
_OPEN_AT_ONCE = 64
"""Ranges that may be open in one another."""


def stage_of_range(name_range: str) -> Stage | None:
    """The stage of an NVTX range `name`, `name@domain` or `domain:name`; None for any other."""
    name = name_range.partition("@")[0].rpartition(":")[2].strip().lower()
    return next((stage for stage in all_stages() if stage.value == name), None)


def kernel_rows(kernels: pd.DataFrame, stage: str | None = None) -> list[Row]:
    """Kernels as rows of the history's table. Raises InvalidFile."""
    if len(kernels) > KERNEL_LIMIT:
        raise InvalidFile(f"more than {KERNEL_LIMIT:,} kernels by name")
    frame = kernels if "stage" in kernels else kernels.assign(stage=stage)
    rows: list[Row] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows


def summed(launches: pd.DataFrame) -> pd.DataFrame:
    """Kernels from their launches, which have `name`, `took` and `stage`: in each, what took most first."""
    found = launches.groupby(["stage", "name"], sort=False, dropna=False)["took"].agg(
        total_ns="sum", instances="count", avg_ns="mean", med_ns="median", min_ns="min", max_ns="max",
        stddev_ns="std",
    )  # fmt: skip
    found = found.fillna({"stddev_ns": 0.0}).reset_index()
    whole = found.groupby("stage", dropna=False)["total_ns"].transform("sum")
    found["time_percent"] = 100 * found["total_ns"] / np.maximum(whole, 1e-9)
    return found.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def timing_rows(backend: str, stage: str, mean: float, deviation: float | None, calls: int) -> list[Row]:
    """A stage's mean and deviation over the pages of a profile, as rows of `timings`."""
    of = {"backend": backend, "stage": str(stage), "inside_prefill": stage not in TOP_LEVEL, "calls": calls}
    rows: list[Row] = [of | {"milliseconds": mean / 1e6, "aggregate": "mean"}]
    if deviation is not None and not np.isnan(deviation) and calls > 1:
        rows.append(of | {"milliseconds": deviation / 1e6, "aggregate": "std"})
    return rows


class Ranges:
    """Ranges of stages on the threads of a profile."""

    def __init__(self) -> None:
        self.stages = all_stages()
        self._ranges: dict[object, list[tuple[float, float, int]]] = {}

    def add(self, thread: object, start: float, end: float, stage: Stage) -> None:
        self._ranges.setdefault(thread, []).append((start, end, self.stages.index(stage)))

    @property
    def threads(self) -> tuple[object, ...]:
        return tuple(self._ranges)

    def took(self, threads: Iterable[object]) -> dict[Stage, list[float]]:
        """Sum the lengths of each range of these threads, by stage."""
        took: dict[Stage, list[float]] = {}
        for thread in threads:
            for start, end, stage in self._ranges.get(thread, ()):
                took.setdefault(self.stages[stage], []).append(end - start)
        return took

    def stages_at(self, thread: object, moments: np.ndarray) -> np.ndarray:
        """Places in `stages` of the range that was begun last of those open on a thread at each moment."""
        order = np.argsort(moments, kind="stable")
        found = np.full(len(moments), NO_STAGE)
        for part, stage in self._inside(thread, moments[order]):
            found[order[part]] = stage
        return found

    def took_on_device(self, work: pd.DataFrame) -> dict[Stage, list[float]]:
        """From the first start to the last end of what each range launched, by stage.

        `work` has `thread` and `moment` of its launch, `start` and `end` on the device.
        """
        took: dict[Stage, list[float]] = {}
        for thread, of in work.sort_values("moment", kind="stable").groupby("thread", sort=False):
            moments, starts, ends = (of[name].to_numpy() for name in ("moment", "start", "end"))
            for part, stage in self._inside(thread, moments):
                span = float(ends[part].max() - starts[part].min())
                took.setdefault(self.stages[stage], []).append(span)
        return took

    def tables(
        self,
        backend: str,
        kernels: pd.DataFrame,
        threads: Sequence[object],
        on_device: Mapping[Stage, Sequence[float]],
    ) -> dict[str, list[Row]]:
        """Rows of `kernels`, whose `stage` is its place in `stages`, and of the ranges on these threads.

        A stage with as many ranges on the device took what those took: the host only queued its work.
        """
        took = self.took(threads)
        for stage, times in on_device.items():
            if stage is not Stage.PREPROCESS and len(times) == len(took.get(stage, times)):
                took[stage] = list(times)
        timings: list[Row] = []
        for stage, times in took.items():
            deviation = float(np.std(times, ddof=1)) if len(times) > 1 else None
            timings += timing_rows(backend, stage, float(np.mean(times)), deviation, len(times))
        names = dict(enumerate(stage.value for stage in self.stages))
        named = kernels.assign(stage=kernels["stage"].map(names).astype(object))
        found = {"kernels": kernel_rows(summed(named)), "timings": timings}
        return {name: rows for name, rows in found.items() if rows}

    def _inside(self, thread: object, moments: np.ndarray) -> Iterator[tuple[slice, int]]:
        """Those of a thread's sorted moments that lie in each range, in the order in which ranges begin."""
        ranges = sorted(self._ranges.get(thread, ()), key=lambda each: (each[0], -each[1]))
        starts, ends = (np.array([each[side] for each in ranges]) for side in (0, 1))
        first, last = np.searchsorted(moments, starts), np.searchsorted(moments, ends, side="right")
        if (last - first).sum() > _OPEN_AT_ONCE * len(moments):
            raise InvalidFile(f"more than {_OPEN_AT_ONCE} ranges of stages are open at once")
        for place in np.flatnonzero(first < last):
            yield slice(first[place], last[place]), ranges[place][2]

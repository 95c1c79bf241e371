"""Kernels and stages of a profile as rows of the history, whichever program made it. Times in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
"""Ranges of stages that may be open in one another."""


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


def summed(launches: pd.DataFrame, keys: Sequence[str] = ("name",)) -> pd.DataFrame:
    """Kernels from their launches, which have `took`: by name, the one that took most first."""
    if launches.empty:
        return pd.DataFrame()
    found = (
        launches.groupby(list(keys), sort=False, dropna=False)["took"]
        .agg(["sum", "count", "mean", "median", "min", "max", "std"])
        .reset_index()
    )
    found.columns = [*keys, "total_ns", "instances", "avg_ns", "med_ns", "min_ns", "max_ns", "stddev_ns"]
    found["stddev_ns"] = found["stddev_ns"].fillna(0.0)
    groups = found.groupby(list(keys[:-1]), dropna=False)["total_ns"] if keys[:-1] else None
    whole = groups.transform("sum") if groups is not None else found["total_ns"].sum()
    found["time_percent"] = 100 * found["total_ns"] / np.maximum(whole, 1e-9)
    return found.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def timing_rows(backend: str, stage: Stage, mean: float, deviation: float | None, calls: int) -> list[Row]:
    """A stage's mean and deviation over the pages of a profile, as rows of `timings`."""
    of = {"backend": backend, "stage": stage.value, "inside_prefill": stage not in TOP_LEVEL, "calls": calls}
    rows: list[Row] = [of | {"milliseconds": mean / 1e6, "aggregate": "mean"}]
    if deviation is not None and calls > 1:
        rows.append(of | {"milliseconds": deviation / 1e6, "aggregate": "std"})
    return rows


class Ranges:
    """Ranges of stages on the threads of a profile."""

    def __init__(self) -> None:
        self.stages = all_stages()
        self._ranges: dict[object, list[tuple[float, float, int]]] = {}
        self._steps: dict[object, tuple[np.ndarray, np.ndarray]] = {}

    def add(self, thread: object, start: float, end: float, stage: Stage) -> None:
        self._ranges.setdefault(thread, []).append((start, end, self.stages.index(stage)))

    @property
    def threads(self) -> tuple[object, ...]:
        return tuple(self._ranges)

    def took(self, threads: Iterable[object]) -> dict[Stage, list[float]]:
        """How long each range of these threads was, by stage."""
        took: dict[Stage, list[float]] = {}
        for thread in threads:
            for start, end, stage in self._ranges.get(thread, ()):
                took.setdefault(self.stages[stage], []).append(end - start)
        return took

    def stages_at(self, thread: object, moments: np.ndarray) -> np.ndarray:
        """Places in `stages` of the innermost range that was open on a thread at each moment."""
        if thread not in self._steps:
            self._steps[thread] = _steps(self._ranges.get(thread, []))
        at, stages = self._steps[thread]
        return stages[np.searchsorted(at, moments, side="right")]

    def took_on_device(self, work: pd.DataFrame) -> dict[Stage, list[float]]:
        """From the first start to the last end of what each range launched, by stage.

        `work` has `thread` and `moment` of its launch, `start` and `end` on the device.
        """
        took: dict[Stage, list[float]] = {}
        for thread, part in work.sort_values("moment", kind="stable").groupby("thread", sort=False):
            moments, starts, ends = (part[name].to_numpy() for name in ("moment", "start", "end"))
            for start, end, stage in self._ranges.get(thread, ()):
                first = np.searchsorted(moments, start)
                last = np.searchsorted(moments, end, side="right")
                if first < last:
                    took.setdefault(self.stages[stage], []).append(
                        float(ends[first:last].max() - starts[first:last].min())
                    )
        return took

    def timings(
        self, backend: str, threads: Sequence[object], on_device: Mapping[Stage, Sequence[float]]
    ) -> list[Row]:
        """Rows of `timings` from the ranges on these threads.

        A stage with as many ranges on the device took what those took: the host only queued its work.
        """
        took = self.took(threads)
        for stage, times in on_device.items():
            if stage is not Stage.PREPROCESS and len(times) == len(took.get(stage, times)):
                took[stage] = list(times)
        rows: list[Row] = []
        for stage, times in took.items():
            deviation = float(np.std(times, ddof=1)) if len(times) > 1 else None
            rows += timing_rows(backend, stage, float(np.mean(times)), deviation, len(times))
        return rows


def _steps(ranges: Sequence[tuple[float, float, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Moments at which another range becomes the innermost, and its stage from then on; before all, none."""
    order = sorted(range(len(ranges)), key=lambda place: (ranges[place][0], -ranges[place][1]))
    at: list[float] = []
    stages = [NO_STAGE]
    open_: list[tuple[float, int]] = []

    def close(until: float) -> None:
        while open_ and (end := min(end for end, _ in open_)) < until:
            inner = open_[-1]
            open_[:] = [each for each in open_ if each[0] > end]
            if not open_ or open_[-1] != inner:
                at.append(np.nextafter(end, np.inf))
                stages.append(open_[-1][1] if open_ else NO_STAGE)

    for place in order:
        start, end, stage = ranges[place]
        close(start)
        open_.append((end, stage))
        del open_[:-_OPEN_AT_ONCE]
        at.append(start)
        stages.append(stage)
    close(np.inf)
    return np.array(at, float), np.array(stages)


def kernels_by_stage(launches: pd.DataFrame, stages: Sequence[Stage]) -> list[Row]:
    """Rows of kernels by the stage whose place in `stages` each launch has, NO_STAGE for none."""
    found = summed(launches, ("stage", "name"))
    if found.empty:
        return []
    names = [None if place == NO_STAGE else stages[place].value for place in found["stage"]]
    return kernel_rows(found.assign(stage=pd.Series(names, dtype=object)))

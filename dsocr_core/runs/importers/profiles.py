"""Kernels and stages of a profile as rows of the history, whichever program made it. Times in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.models.stages import TOP_LEVEL, Stage
from dsocr_core.runs.importers.imported import ImportedRun, Row, RunFiles
from dsocr_core.runs.record import Source

KERNEL_LIMIT, NAME_LIMIT = 100_000, 4_000
"""Names of kernels in a profile, and characters of one."""
RANGE = ("thread", "start", "end", "stage")
"""Columns of the ranges of a profile."""
_OPEN_AT_ONCE = 64  # ranges that may be open in one another


def profile_run(
    files: RunFiles, source: Source, what: str, tables: Mapping[str, Sequence[Row]], *notes: str, **more: Any
) -> list[ImportedRun]:
    """The run of a profile that knows its file alone; its notes say what it is, the file, and `notes`."""
    said = " ".join(filter(None, (f"{what} {without_surrogates(files.place.name)[:200]}.", *notes)))
    # The profiled program is not known: its stages are said to be the profiler's.
    backends = (source,) if tables.get("timings") else ()
    return [files.run(source, tables, said, profiled=True, backends=backends, **more)]


def stage_of_range(name_range: str) -> Stage | None:
    """The stage of an NVTX range `name`, `name@domain` or `domain:name`; None for any other."""
    name = name_range.partition("@")[0].rpartition(":")[2].strip().lower()
    return next((stage for stage in Stage if stage.value == name), None)


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


def spread_rows(backend: str, stage: str, values: Mapping[str, Any], calls: int | None = None) -> list[Row]:
    """Times of a stage in ms by their aggregate, None or NaN where one is not known, as rows of `timings`."""
    of = {"backend": backend, "stage": str(stage), "calls": calls, "inside_prefill": stage not in TOP_LEVEL}
    return [
        of | {"milliseconds": value, "aggregate": aggregate}
        for aggregate, value in values.items()
        if value is not None and not np.isnan(value)
    ]


def by_stage(work: pd.DataFrame, ranges: pd.DataFrame) -> tuple[np.ndarray, dict[str, list[float]]]:
    """The stage of each launch, None for none, and by stage how long the device worked for each range.

    A launch is of the innermost range that was open on its thread; a range took from the first start to the
    last end of all that was launched in it. `work` has `thread` and `moment` of each launch, `start` and
    `end` on the device. Raises InvalidFile.
    """
    stages = np.full(len(work), None, object)
    took: dict[str, list[float]] = {}
    moments, starts, ends = (work[name].to_numpy(float) for name in ("moment", "start", "end"))
    rows = work.groupby("thread").indices
    ranges = ranges.sort_values(["start", "end"], ascending=[True, False], kind="stable")
    for thread, of in ranges.groupby("thread", sort=False):
        if (at := rows.get(thread)) is None:
            continue
        at = at[np.argsort(moments[at], kind="stable")]
        first = np.searchsorted(moments[at], of["start"].to_numpy(float))
        last = np.searchsorted(moments[at], of["end"].to_numpy(float), side="right")
        if (last - first).sum() > _OPEN_AT_ONCE * len(at):
            raise InvalidFile(f"more than {_OPEN_AT_ONCE} ranges of stages are open at once")
        for begin, end, stage in zip(first, last, of["stage"], strict=True):
            if begin < end:
                part = at[begin:end]
                stages[part] = stage
                took.setdefault(stage, []).append(float(ends[part].max() - starts[part].min()))
    return stages, took


def profile_tables(
    backend: str, launches: pd.DataFrame, ranges: pd.DataFrame, on_device: Mapping[str, list[float]]
) -> dict[str, list[Row]]:
    """Rows of `kernels` from `launches`, see `summed`, and of `timings` from these ranges.

    A stage with as many ranges on the device took what those took: the host only queued its work.
    """
    lengths = (ranges["end"] - ranges["start"]).groupby(ranges["stage"], sort=False)
    took = {stage: of.to_list() for stage, of in lengths}
    for stage, times in on_device.items():
        if stage != Stage.PREPROCESS and len(times) == len(took.get(stage, times)):
            took[stage] = times
    timings: list[Row] = []
    for stage, times in took.items():
        of = pd.Series(times, dtype=float) / 1e6
        timings += spread_rows(backend, stage, {"mean": of.mean(), "std": of.std()}, len(of))
    return {"kernels": kernel_rows(summed(launches)), "timings": timings}

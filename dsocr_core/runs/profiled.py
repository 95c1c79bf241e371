"""Launches that Nsight Compute profiled, a row each or a row a kernel: their shares of a run."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsocr_core.runs.history import History
from dsocr_core.runs.kernel_profiles import class_of, figures, matched
from dsocr_core.runs.timings import in_order

_DEVICE_NAME = "device__attribute_display_name"


def profile_rows(launches: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a launch: number, kernel, stage, its `figures`, share of the time of all, run_share, run."""
    of_launch: dict[int, list[dict[str, Any]]] = {}
    columns = ("number", "metric", "value", "unit")
    # As lists: cutting a frame into hundreds of launches takes longer than all that is read of them.
    for number, metric, measure, unit in zip(*(metrics[name].tolist() for name in columns), strict=True):
        of_launch.setdefault(number, []).append({"metric": metric, "value": measure, "unit": unit})
    empty = figures([])
    rows = pd.DataFrame(
        [
            {"number": row["number"], "kernel": row["kernel"], "stage": row["stage"]}
            | figures(of_launch.get(row["number"], ()), row.get("compute_capability"))
            for row in launches.to_dict("records")
        ]
    )
    numbers = [name for name in empty if name not in ("limiter", "class")]
    rows[numbers] = rows[numbers].astype(float)
    # A row of `--print-summary` is the mean of its invocations.
    took = rows["duration_s"] * rows["invocations"].fillna(1.0)
    rows["share"] = took / took.sum(min_count=1)
    return rows.assign(run_share=float("nan"), run=None)


def device_name(metrics: pd.DataFrame) -> str | None:
    """The card's name, where all launches that have one have the same."""
    if "text" not in metrics:
        return None
    names = metrics.loc[metrics["metric"] == _DEVICE_NAME, "text"].dropna().unique()
    return str(names[0]) if len(names) == 1 else None


_SUMMED = ["duration_s", "flops", "tensor_flops", "bytes", "bytes_read", "bytes_written", "share"]


def by_kernel(rows: pd.DataFrame, shape: str | None = None) -> pd.DataFrame:
    """`profile_rows` with a row a kernel and stage, in the order of their time; `launches` counts them.

    With the name of a column `shape` launches that differ in it are kernels of their own. Times, FLOPs, bytes
    and shares are sums; the other figures are means over the time; the class follows from those.
    """
    keys = ["kernel", "stage", *([shape] if shape else [])]
    means = [name for name in figures([]) if name not in (*_SUMMED, "limiter", "class")]

    def groups(frame: pd.DataFrame) -> Any:
        return frame.groupby([rows[name] for name in keys], sort=False, dropna=False)

    took = rows[["duration_s"]]
    weights = took.fillna(groups(took).transform("mean"))["duration_s"].fillna(1.0)
    sums = groups(rows[_SUMMED]).sum().mask(groups(rows[_SUMMED].isna()).any())
    measured = groups(rows[means].mul(weights, axis=0)).sum(min_count=1)
    measured /= groups(rows[means].notna().mul(weights, axis=0)).sum()
    facts = groups(rows).agg(
        number=("number", "first"), launches=("number", "size"), run=("run", "first"),
        run_share=("run_share", "max"),  # the summary's share is that of all launches of a kernel
        limiter=("limiter", lambda each: next(iter(each.dropna().mode()), None)),
    )  # fmt: skip
    found = pd.concat([facts, sums, measured], axis=1).reset_index()
    found["stage"] = found["stage"].astype(object).where(found["stage"].notna(), None)
    shares = found[["sm", "dram", "memory"]].to_dict("records")
    found["class"] = [class_of({name: known(share) for name, share in of.items()}) for of in shares]
    return found.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def known(value: Any) -> Any:
    """None for NaN."""
    return None if value != value else value


def joined(history: History, rows: pd.DataFrame, run: str) -> list[str]:
    """Fill in each kernel's share and stage from the summary that has most of the kernels."""
    runs = [other for other in history.runs_with("kernels") if other != run][:20]
    if not runs:
        return []
    summed, sql = history.query("kernels", run_ids=runs, top=100_000)
    best: tuple[int, str, list[int | None]] = (0, "", [])
    kernels = rows["kernel"].tolist()
    for other, part in summed.groupby("run_id", sort=False):
        if part["stage"].notna().any():
            continue  # of one stage only: no shares of a whole run
        places = matched(kernels, part["name"].tolist())
        count = sum(place is not None for place in places)
        if count > best[0]:
            best = (count, str(other), places)
    if 2 * best[0] < len(rows):
        return []
    part = summed[summed["run_id"] == best[1]].reset_index(drop=True)
    rows["run_share"] = [float("nan") if place is None else part["share"][place] for place in best[2]]
    rows["run"] = [None if place is None else best[1] for place in best[2]]
    stages = _stages_by_name(summed)
    names = [None if place is None else part["name"][place] for place in best[2]]
    rows["stage"] = [
        stage if isinstance(stage, str) else stages.get(name)
        for stage, name in zip(rows["stage"], names, strict=True)
    ]
    return [sql]


def _stages_by_name(summed: pd.DataFrame) -> dict[str | None, str]:
    """The one stage, or the stages, whose own summaries have a kernel of that name."""
    staged = summed[summed["stage"].notna()]
    return {str(name): ", ".join(in_order(part["stage"])) for name, part in staged.groupby("name")}

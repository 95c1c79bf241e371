"""Launches that Nsight Compute profiled, a row each or a row a kernel: their shares of a run."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dsocr_core.runs.history import History
from dsocr_core.runs.kernel_names import plain_name
from dsocr_core.runs.kernel_profiles import class_of, figures

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
            | figures(of_launch.get(row["number"], ()))
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
    """Fill in each kernel's share of a run from the summary that has most of the kernels."""
    runs = [other for other in history.runs_with("kernels") if other != run][:20]
    if not runs:
        return []
    summed, sql = history.query("kernels", run_ids=runs, top=100_000)
    names = rows["kernel"].map(plain_name)
    best, shares = "", pd.Series(dtype=float)
    whole = summed.groupby("run_id").filter(lambda part: part["stage"].isna().all())  # not of one stage
    for other, part in whole.groupby("run_id", sort=False):
        of_name = part.groupby(part["name"].map(plain_name))["share"].max()
        if names.isin(of_name.index).sum() > names.isin(shares.index).sum():
            best, shares = str(other), of_name
    if 2 * names.isin(shares.index).sum() < len(rows):
        return []
    rows["run_share"] = names.map(shares)
    rows["run"] = [best if name in shares.index else None for name in names]
    return [sql]

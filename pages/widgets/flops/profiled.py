"""What Nsight Compute counted of an engine's stages, for the FLOPs page's roofline. Nothing here is shown."""

from __future__ import annotations

import duckdb
import pandas as pd

from dsocr_core.errors import DsocrError
from dsocr_core.history.kernel_profiles import figures
from pages.widgets.flops.bounds import of_device
from pages.widgets.shared import resources

_SUMMED = ("flops", "bytes", "duration_s")
COLUMNS = ["stage", "kind", "intensity", "flops_per_s", "launches", "run"]


def counted_points(engine: str, hardware: str) -> pd.DataFrame:
    """A point a stage from the newest profile of that engine on that device whose operations were counted.

    All its counted launches together, each at the time that it took alone. Columns as `roofline_points`,
    and launches, run. Empty without such a profile.
    """
    empty = pd.DataFrame(columns=COLUMNS)
    try:
        history = resources.history()
        there = set(history.runs_with("kernel_metrics"))
        runs = history.runs(sources=["dsocr"], engines=[engine], profiled=True)
        runs = runs[runs["run_id"].isin(there) & runs["gpu"].notna()]
        for run, gpu in zip(runs["run_id"], runs["gpu"], strict=True):
            if of_device(hardware, str(gpu)):
                launches, _ = history.query("launches", run_ids=[run])
                metrics, _ = history.query("launch_metrics", run_ids=[run])
                points = stage_points(launches, metrics)
                if len(points):
                    return points.assign(run=run)
    except (DsocrError, duckdb.Error):
        return empty
    return empty


def stage_points(launches: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """The sums of each stage's launches that have FLOPs, bytes and a time: COLUMNS without run."""
    stages = launches.set_index("number")["stage"]
    rows = []
    for number, part in metrics.groupby("number"):
        found = figures(part[["metric", "value", "unit"]].to_dict("records"))
        row = {
            "stage": stages.get(number),
            **{name: found[name] for name in ("flops", "bytes", "duration_s")},
        }
        if isinstance(row["stage"], str) and all(row.values()):
            rows.append(row)
    if not rows:
        return pd.DataFrame(columns=COLUMNS[:-1])
    sums = pd.DataFrame(rows).groupby("stage").agg(
        flops=("flops", "sum"), bytes=("bytes", "sum"), seconds=("duration_s", "sum"),
        launches=("flops", "size"),
    )  # fmt: skip
    return pd.DataFrame(
        {
            "stage": sums.index,
            "kind": "counted",
            "intensity": sums["flops"] / sums["bytes"],
            "flops_per_s": sums["flops"] / sums["seconds"],
            "launches": sums["launches"],
        }
    ).reset_index(drop=True)

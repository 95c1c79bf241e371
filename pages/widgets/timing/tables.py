"""Columns of the tables of the Timing page; the frames are made in the core."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from dsocr_core.base.formatting import significant, speed_ratio
from dsocr_core.runs.kernel_names import kernel_names
from dsocr_core.runs.labels import has_value
from dsocr_core.runs.measures import Measure
from pages.widgets.shared.stages import stage_name
from pages.widgets.shared.table import Column

SPEED = Column("B is", lambda ratio: speed_ratio(1.0, ratio), "Where the interval is beyond the band.")
"""A ratio of times, A over B, as "1.31x faster"."""
STAGES = {
    "run": Column("run"),
    "backend": Column("backend"),
    "stage": Column("stage", stage_name, left=True),
    "n": Column("pages", "count"),
    **{name: Column(name, "ms") for name in ("median", "p5", "p95", "mean", "std")},
}
"""Columns of `timings.stage_rows` with the runs' names."""


def changes_columns(measure: Measure) -> dict[str, Column]:
    """Columns of `told_changes`, whose levels are of that measure."""
    unit = {"ms": "ms", "%": "share"}.get(measure.unit, measure.name)
    return {
        "since": Column("since", lambda moment: f"{moment:%Y-%m-%d %H:%M}", left=True),
        "run_id": Column("from run"),
        "commit": Column("commit"),
        "before": Column("before", unit),
        "n_before": Column("runs before", "count"),
        "value": Column("after", unit),
        "n": Column("runs after", "count"),
        "change": Column("change"),
        "condition": Column("under"),
    }


COMPARISON = {
    "stage": Column("stage", stage_name, left=True),
    "median_a": Column("A median", "ms"),
    "median_b": Column("B median", "ms"),
    "speed": SPEED,
    "ratio": Column("B / A", "", "Time of B over time of A: below 1 B is faster."),
    "low": Column("95 % from", "", "The interval of B / A."),
    "high": Column("to", ""),
    "pages": Column("pages", "count"),
    "runs_a": Column(
        "runs like A", "count", "Of one commit, machine and setting: the draws of the interval."
    ),
    "runs_b": Column("like B", "count"),
    "verdict": Column("verdict"),
    "why": Column("why"),
}
"""Columns of `timings.comparison`."""
PAGES = {"page": Column("page"), "a_ms": Column("A", "ms"), "b_ms": Column("B", "ms")}
"""Columns of `timings.single_pairs`."""
KERNELS = {
    "stage": Column("stage"),
    "kernel": Column("kernel"),
    "share": Column("share", "share", "Of the GPU time of the stage."),
    "total_s": Column("total", "s"),
    "instances": Column("calls", "count"),
    **{f"{name}_s": Column(head, "s") for name, head in
       (("avg", "mean"), ("med", "median"), ("min", "least"), ("max", "most"))},
    "name": Column("full name"),
}  # fmt: skip
"""Columns of `told_kernels`."""


def told_changes(found: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """`statistics.changes` with both commits in one column and how much faster it became, in words."""
    commits = commit_words(found["commit_before"], found["git_commit"])
    words = [measure.change(*levels) for levels in zip(found["before"], found["value"], strict=True)]
    return found.assign(commit=commits, change=words)


def commit_words(before: Iterable[object], after: Iterable[object]) -> list[str]:
    """Write pairs of commits, each by its beginning."""
    pairs = zip(before, after, strict=True)
    return [" → ".join(str(one)[:7] if has_value(one) else "not known" for one in pair) for pair in pairs]


def told_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """The query `kernels` of one run with short names, and times in seconds."""
    return kernels.assign(
        stage=[stage_name(stage) if has_value(stage) else "all stages" for stage in kernels["stage"]],
        kernel=kernel_names(kernels["name"].tolist()),
        **{f"{name}_s": kernels[f"{name}_ns"] / 1e9 for name in ("total", "avg", "med", "min", "max")},
    )


def interval_words(low: float, high: float) -> str:
    """The interval of B's time over A's, as a ratio."""
    return f"{significant(low)} – {significant(high)}" if has_value(low) and has_value(high) else "–"

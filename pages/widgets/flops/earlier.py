"""Points of imported sweeps as the FLOPs page takes them. Nothing here is shown."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pandas as pd

from analytic_model.earlier_estimates import Estimate, EstimateError, Explained, explain, workload_of
from dsocr_core.config import ModelConfig
from dsocr_core.errors import DsocrError
from dsocr_core.history.store import History
from pages.widgets.shared import resources

_SAME_WORK = ["tile_columns", "tile_rows", "batch", "context", "steps"]
"""Two engines' points with the same of these are of the same work."""
PART_WORDS = {"vision": "vision", "prefill": "vision and prefill", "decode": "decode"}


def runs_with_sweeps(history: History) -> list[str]:
    """Runs that an older project's sweep was imported as, newest first."""
    there = set(history.runs_with("sweep_points"))
    runs = history.runs(sources=["sweep"])
    return [run for run in runs["run_id"] if run in there]


def counted_dots(axis: str, end: int) -> pd.DataFrame:
    """What torch counted of vision and prefill: x on the axis, flops, grid. Empty without a history."""
    empty = pd.DataFrame(columns=["x", "flops", "grid"])
    try:
        history = resources.history()
        runs = runs_with_sweeps(history)
        if not runs:
            return empty
        points, _ = history.query("sweep_points", run_ids=runs, engines=["counted"])
    except (DsocrError, duckdb.Error):
        return empty
    points = points[points["part"] == "prefill"].drop_duplicates(["tile_columns", "tile_rows", "flops"])
    tiles = points["tile_columns"] * points["tile_rows"]
    x = tiles if axis == "tiles" else points["image_tokens"]
    grid = points["tile_columns"].astype(str) + " x " + points["tile_rows"].astype(str) + " tiles"
    found = pd.DataFrame({"x": x, "flops": points["flops"], "grid": grid})
    return found[found["x"] <= end].reset_index(drop=True)


def estimates(points: pd.DataFrame, part: str, engine: str) -> list[Estimate]:
    """The points of one part and engine, each with torch's count of the same grid where there is one."""
    here = points[points["part"] == part]
    counted = here[here["engine"] == "counted"].drop_duplicates(_SAME_WORK).set_index(_SAME_WORK)["flops"]
    found = []
    for row in here[here["engine"] == engine].to_dict("records"):
        at = tuple(row[name] for name in _SAME_WORK)
        other = row["other_flops"]
        found.append(
            Estimate(
                part,  # type: ignore[arg-type]
                (int(row["tile_columns"]), int(row["tile_rows"])),
                int(row["batch"]),
                int(row["context"]),
                int(row["steps"]),
                int(row["flops"]),
                int(other) if other == other and other is not None else None,
                int(counted.loc[at]) if at in counted.index else None,
            )
        )
    return found


def explained(config: ModelConfig, found: list[Estimate]) -> list[Explained]:
    """Points whose work can be; one of a prompt without room for its image is left out."""
    kept = []
    for estimate in found:
        try:
            kept.append(explain(config, estimate))
        except EstimateError:
            continue
    return kept


def gap_frame(found: list[Explained], counts: Mapping[Estimate, int] | None = None) -> pd.DataFrame:
    """A row a point: tiles, image_tokens, estimate, exact, gap, counted, counted_gap, counted_here, causes.

    `counts` is what torch counts in our core; `counted` what it did in the published code. A column a cause.
    """
    rows = []
    for point in found:
        estimate = point.estimate
        columns, rows_of_tiles = estimate.grid
        rows.append(
            {
                "tiles": columns * rows_of_tiles,
                "grid": f"{columns} x {rows_of_tiles}",
                "image_tokens": workload_of(estimate).image_tokens,
                "estimate": estimate.flops,
                "exact": point.exact,
                "gap": point.gap,
                "counted": estimate.counted_flops,
                "counted_gap": point.counted_gap,
                "counted_here": (counts or {}).get(estimate),
                **{cause.name: cause.flops for cause in point.causes},
            }
        )
    frame = pd.DataFrame(rows)
    if len(frame):
        frame = frame.astype(dict.fromkeys(("counted", "counted_gap", "counted_here"), "Int64")).sort_values(
            ["tiles", "grid"]
        )
    return frame.reset_index(drop=True)

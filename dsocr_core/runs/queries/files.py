"""Kernels, launches and traces of runs, read from their files when they are asked for."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, Query

QUERIES: dict[str, Query] = {}

# Sums of kernels: the longest of each run and stage, with their share of its GPU time.
QUERIES["kernels"] = Query(
    """
    SELECT run_id, stage, name, total_ns, instances, avg_ns, med_ns, min_ns, max_ns, stddev_ns, time_percent,
           total_ns / nullif(sum(total_ns) OVER (PARTITION BY run_id, stage), 0) AS share
    FROM read_parquet($files)
    WHERE list_contains($run_ids, run_id) AND ($stages::VARCHAR[] IS NULL OR list_contains($stages, stage))
    QUALIFY row_number() OVER (PARTITION BY run_id, stage ORDER BY total_ns DESC, name) <= $top
    ORDER BY run_id, stage NULLS FIRST, total_ns DESC, name
    """,
    {"run_ids": REQUIRED, "stages": None, "top": 20},
    "kernels",
)

# Launches that Nsight Compute profiled, in the order of the profile.
QUERIES["launches"] = Query(
    """
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), number
    """,
    {"run_ids": REQUIRED},
    "kernel_launches",
)

# Every figure that it took of a launch, in the unit it was printed in.
QUERIES["launch_metrics"] = Query(
    """
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), number, section, metric
    """,
    {"run_ids": REQUIRED},
    "kernel_metrics",
)

# Two backends compared tensor by tensor, page by page.
QUERIES["traces"] = Query(
    """
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), page, a, b, steps
    """,
    {"run_ids": REQUIRED},
    "traces",
)

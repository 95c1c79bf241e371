"""Kernels, launches and traces of runs, read from their files when they are asked for."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, Questions

QUERIES = Questions()
_ask = QUERIES.ask


_ask(
    "kernels",
    "kernels of imported Nsight runs: the longest of each run and stage, with their share of its GPU time",
    """
    SELECT run_id, stage, name, total_ns, instances, avg_ns, med_ns, min_ns, max_ns, stddev_ns, time_percent,
           total_ns / nullif(sum(total_ns) OVER (PARTITION BY run_id, stage), 0) AS share
    FROM read_parquet($files)
    WHERE list_contains($run_ids, run_id) AND ($stages::VARCHAR[] IS NULL OR list_contains($stages, stage))
    QUALIFY row_number() OVER (PARTITION BY run_id, stage ORDER BY total_ns DESC, name) <= $top
    ORDER BY run_id, stage NULLS FIRST, total_ns DESC, name
    """,
    "kernels",
    run_ids=REQUIRED,
    stages=None,
    top=20,
)

_ask(
    "launches",
    "launches that Nsight Compute profiled, in the order of the profile",
    """
    SELECT run_id, number, kernel, launch, stage, block, grid, device, compute_capability
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), number
    """,
    "kernel_launches",
    run_ids=REQUIRED,
)

_ask(
    "launch_metrics",
    "every figure that Nsight Compute took of a launch, in the unit it was printed in",
    """
    SELECT run_id, number, kernel, launch, section, metric, value, unit, text
    FROM read_parquet($files)
    WHERE list_contains($run_ids, run_id) AND ($number::BIGINT IS NULL OR number = $number)
    ORDER BY list_position($run_ids, run_id), number, section, metric
    """,
    "kernel_metrics",
    run_ids=REQUIRED,
    number=None,
)

_ask(
    "traces",
    "two backends compared tensor by tensor, page by page",
    """
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), page, a, b, steps
    """,
    "traces",
    run_ids=REQUIRED,
)

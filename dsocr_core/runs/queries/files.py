"""Content of the files of runs, read when it is asked for: pages, texts, boxes, tokens, kernels, parity."""

from __future__ import annotations

from typing import Any

from dsocr_core.runs.queries.query import REQUIRED, RUN_FILTER, RUN_FILTERS, Questions

QUERIES = Questions()
_ask = QUERIES.ask


def _read(
    name: str, why: str, table: str, columns: str = "*", by: str = "page, backend", **page: Any
) -> None:
    """Ask for a table's rows as they are, run after run; of one page, where `page` is a parameter."""
    where = "list_contains($run_ids, run_id)"
    if page:
        one = "page = $page"
        where += f" AND {one}" if page["page"] is REQUIRED else f" AND ($page::VARCHAR IS NULL OR {one})"
    sql = f"""
    SELECT {columns} FROM read_parquet($files)
    WHERE {where}
    ORDER BY list_position($run_ids, run_id), {by}
    """
    _ask(name, why, sql, table, run_ids=REQUIRED, **page)


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

_read(
    "launches",
    "launches that Nsight Compute profiled, in the order of the profile",
    "kernel_launches",
    "run_id, number, kernel, launch, stage, block, grid, device, compute_capability",
    "number",
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

_read(
    "launch_rules",
    "what the rules of Nsight Compute say of a launch, and the speedup they estimate",
    "kernel_rules",
    "run_id, number, kernel, launch, section, rule, type, text, speedup_type, speedup_percent",
    "number, section, rule",
)

_ask(
    "sweep_points",
    "points of imported analytic sweeps: the estimates of eager and flash attention, and torch's counter",
    """
    SELECT run_id, part, engine, tile_columns, tile_rows, image_tokens, batch, context, steps, flops,
           other_flops, bytes, weight_bytes, activation_bytes, kv_bytes
    FROM read_parquet($files)
    WHERE list_contains($run_ids, run_id) AND ($engines::VARCHAR[] IS NULL OR list_contains($engines, engine))
    ORDER BY list_position($run_ids, run_id), part, tile_columns * tile_rows, tile_columns, engine
    """,
    "sweep_points",
    run_ids=REQUIRED,
    engines=None,
)

_ask(
    "flops",
    "FLOPs per run, backend and stage over its pages, measured and by arithmetic",
    """
    SELECT run_id, backend, stage, kind, count(flops) AS n, median(flops) AS median, sum(flops) AS total
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    GROUP BY run_id, backend, stage, kind ORDER BY run_id, backend, stage, kind
    """,
    "stage_flops",
    run_ids=REQUIRED,
)

_read("pages", "the pages of runs, without their texts", "images", "* EXCLUDE (text_raw)")

_read(
    "texts",
    "what was read on a page",
    "images",
    "run_id, page, backend, text_raw, finish_reason, error",
    page=REQUIRED,
)

_read("boxes", "boxes of runs, of one page or of all", "boxes", by="page, backend, number", page=None)

_read(
    "tokens",
    "new tokens of a page, or of all pages of runs",
    "tokens",
    "run_id, page, backend, token_ids",
    page=None,
)

_read("traces", "two backends compared tensor by tensor, page by page", "traces", by="page, a, b, steps")

_read("parity", "parity of A and B on each page of runs", "parity", by="page")

_ask(
    "parity_trend",
    "the parity verdicts of each comparing run's pages, one run after another; the first two of them pass",
    f"""
    SELECT runs.run_id, runs.created, runs.git_commit, parity_totals.pages, parity_totals.passed,
           parity_totals.identical, parity_totals.within_tolerance, parity_totals.differs,
           parity_totals.not_comparable, parity_totals.mean_character_error_rate,
           parity_totals.max_coordinate_difference_percent
    FROM parity_totals JOIN listed AS runs USING (run_id)
    WHERE {RUN_FILTER} ORDER BY runs.created, runs.run_id
    """,
    **RUN_FILTERS,
)

_ask(
    "parity_verdicts",
    "how many pages of each comparing run have which parity verdict: one row a run and verdict",
    f"""
    SELECT runs.run_id, runs.created, verdicts.verdict, verdicts.pages
    FROM (
        UNPIVOT (SELECT run_id, identical, within_tolerance, differs, not_comparable FROM parity_totals)
        ON identical, within_tolerance, differs, not_comparable INTO NAME verdict VALUE pages
    ) AS verdicts
    JOIN listed AS runs USING (run_id)
    WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id)) AND {RUN_FILTER}
    ORDER BY runs.created, runs.run_id,
             list_position(['identical', 'within_tolerance', 'differs', 'not_comparable'], verdicts.verdict)
    """,
    **RUN_FILTERS,
    run_ids=None,
)

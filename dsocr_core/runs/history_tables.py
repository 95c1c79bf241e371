"""Tables of the history's index, and the statements that fill them from the runs' Parquet.

The index has what is asked of many runs at once: their records, and figures that never change. Everything
else (times, boxes, texts, kernels) is read from the files of the runs that are asked for.
"""

from __future__ import annotations

from dsocr_core.runs.queries import gaps
from dsocr_core.runs.queries.query import LISTED
from dsocr_core.runs.shapes import SHAPE_SQL

CREATE = f"""
CREATE TABLE entries (
    run_id VARCHAR, root INTEGER, version VARCHAR, created VARCHAR, tables VARCHAR[], document VARCHAR,
    damage VARCHAR, shaped BOOLEAN
);
CREATE TABLE annotation_files (root INTEGER, name VARCHAR, version VARCHAR, damage VARCHAR);
CREATE TABLE runs (
    run_id VARCHAR, created TIMESTAMP, source VARCHAR, command VARCHAR, backends VARCHAR[], engine VARCHAR,
    device VARCHAR, gpu VARCHAR, host VARCHAR, dtype VARCHAR, attention VARCHAR, preset VARCHAR,
    profiled BOOLEAN, git_commit VARCHAR, git_dirty BOOLEAN, notes VARCHAR
);
CREATE TABLE facts (run_id VARCHAR, section VARCHAR, name VARCHAR, value VARCHAR);
CREATE TABLE annotations (
    position BIGINT, time TIMESTAMP, run_id VARCHAR, kind VARCHAR, page VARCHAR, name VARCHAR, value VARCHAR
);
CREATE TABLE stage_statistics (
    run_id VARCHAR, backend VARCHAR, stage VARCHAR, inside_prefill BOOLEAN, n BIGINT, median DOUBLE,
    p5 DOUBLE, p95 DOUBLE, mean DOUBLE, std DOUBLE, total DOUBLE
);
CREATE TABLE page_statistics (
    run_id VARCHAR, backend VARCHAR, n BIGINT, median DOUBLE, p95 DOUBLE, mean DOUBLE
);
CREATE TABLE timed_pages (run_id VARCHAR, backend VARCHAR, page VARCHAR);
CREATE TABLE page_totals (
    run_id VARCHAR, backend VARCHAR, pages BIGINT, failed BIGINT, prompt_tokens BIGINT, new_tokens BIGINT
);
CREATE TABLE parity_totals (
    run_id VARCHAR, pages BIGINT, passed BIGINT, identical BIGINT, within_tolerance BIGINT, differs BIGINT,
    not_comparable BIGINT, mean_character_error_rate DOUBLE, max_coordinate_difference_percent DOUBLE
);
CREATE TABLE shape_times (
    run_id VARCHAR, backend VARCHAR, shape VARCHAR, stage VARCHAR, inside_prefill BOOLEAN, n BIGINT,
    milliseconds DOUBLE, own_milliseconds DOUBLE
);
CREATE TABLE flops (
    run_id VARCHAR, backend VARCHAR, shape VARCHAR, stage VARCHAR, kind VARCHAR, flops DOUBLE, bytes DOUBLE
);
CREATE TEMP TABLE expected (run_id VARCHAR);
CREATE TABLE listed_runs AS {LISTED};
"""
"""Tables of a new file; a change of a text here makes another file."""

VIEWS = (
    """
CREATE VIEW marks AS
    WITH latest AS (
        SELECT run_id, kind, name, arg_max(coalesce(value, ''), position) AS value
        FROM annotations WHERE page IS NULL GROUP BY run_id, kind, name
    )
    SELECT run_id,
           coalesce(list(name ORDER BY name) FILTER (kind = 'tag' AND value = 'on'), []) AS tags,
           max(nullif(value, '')) FILTER (kind = 'note') AS note,
           coalesce(bool_or(value = 'on') FILTER (kind = 'trash'), false) AS trashed
    FROM latest GROUP BY run_id;
CREATE VIEW listed AS
    SELECT listed_runs.*, coalesce(marks.tags, []) AS tags, marks.note,
           coalesce(marks.trashed, false) AS trashed
    FROM listed_runs LEFT JOIN marks USING (run_id);
"""
    + gaps.VIEWS
)
"""Views of each connection to the file, whose annotations are those of the file and later ones."""


def _rows(table: str, more: str = "") -> str:
    return f"(FROM read_parquet(${table}{more}) SEMI JOIN expected USING (run_id)) AS given"


OF_A_RUN = (
    f"""
INSERT INTO stage_statistics
    SELECT run_id, backend, stage, inside, nullif(n, 0), quantiles[1], quantiles[2], quantiles[3],
           CASE WHEN n > 0 THEN mean ELSE given_mean END, CASE WHEN n > 0 THEN std ELSE given_std END, total
    FROM (
        SELECT run_id, backend, stage, bool_or(inside_prefill) AS inside, count(ms) AS n, avg(ms) AS mean,
               quantile_cont(ms, [0.5, 0.05, 0.95]) AS quantiles, stddev_samp(ms) AS std, sum(ms) AS total,
               avg(milliseconds) FILTER (aggregate = 'mean') AS given_mean,
               avg(milliseconds) FILTER (aggregate = 'std') AS given_std
        FROM (SELECT *, CASE aggregate WHEN 'page' THEN milliseconds END AS ms FROM {_rows("timings")})
        GROUP BY run_id, backend, stage
    )
""",
    f"""
CREATE OR REPLACE TEMP TABLE page_times AS
    SELECT run_id, backend, page, sum(milliseconds) AS ms FROM {_rows("timings")}
    WHERE aggregate = 'page' AND NOT inside_prefill GROUP BY run_id, backend, page;
INSERT INTO timed_pages SELECT run_id, backend, page FROM page_times;
INSERT INTO page_statistics
    SELECT run_id, backend, count(*), median(ms), quantile_cont(ms, 0.95), avg(ms) FROM page_times
    GROUP BY run_id, backend
""",
    f"""
INSERT INTO page_totals
    SELECT run_id, backend, count(*), count(error), sum(prompt_tokens), sum(new_tokens)
    FROM {_rows("readings")} GROUP BY run_id, backend
""",
    f"""
INSERT INTO parity_totals
    SELECT run_id, count(*), count(*) FILTER (verdict IN ('identical', 'within_tolerance')),
           count(*) FILTER (verdict = 'identical'), count(*) FILTER (verdict = 'within_tolerance'),
           count(*) FILTER (verdict = 'differs'), count(*) FILTER (verdict = 'not_comparable'),
           avg(character_error_rate), max(max_coordinate_difference_percent)
    FROM {_rows("parity")} GROUP BY run_id
""",
)
"""Statements that add runs which are `expected`; each is left out where no run has a table that it reads."""

OF_SHAPES = (
    # The counts of shapes, and of imported runs; an earlier bench has others, page by page.
    f"""
INSERT INTO flops
    SELECT run_id, backend, shape, stage, kind, flops, CASE kind WHEN 'least' THEN bytes END
    FROM (FROM (SELECT NULL::VARCHAR AS shape, NULL::DOUBLE AS bytes WHERE false)
          UNION ALL BY NAME FROM {_rows("stage_flops", ", union_by_name = true")})
    WHERE flops IS NOT NULL AND (shape IS NOT NULL OR page IS NULL)
""",
    f"""
INSERT INTO flops
    SELECT run_id, NULL, printf('%dx%d tiles, batch %d, context %d, %d steps', tile_columns, tile_rows, batch,
           context, steps), part, CASE engine WHEN 'eager' THEN 'analytic' ELSE 'measured' END, flops, NULL
    FROM {_rows("sweep_points")} WHERE engine IN ('eager', 'counted')
""",
    # A shape's prefill of its own is what the vision inside it leaves.
    f"""
INSERT INTO shape_times
    WITH shaped AS (SELECT run_id, backend, page, {SHAPE_SQL} AS shape FROM {_rows("readings")}),
    measured AS MATERIALIZED (
        SELECT run_id, backend, page, shape, stage, inside_prefill, milliseconds AS ms
        FROM {_rows("timings")} JOIN shaped USING (run_id, backend, page)
        WHERE aggregate = 'page' AND shape IS NOT NULL
    ),
    vision AS (
        SELECT run_id, backend, page, sum(ms) AS inside FROM measured WHERE inside_prefill GROUP BY ALL
    )
    SELECT run_id, backend, shape, stage, inside_prefill, count(*), median(ms),
           median(ms - coalesce(inside, 0)) FILTER (stage = 'prefill')
    FROM measured LEFT JOIN vision USING (run_id, backend, page)
    GROUP BY run_id, backend, shape, stage, inside_prefill
""",
)
"""Statements that add the FLOPs and times of shapes, once somebody asks for them: they are the longest."""
NAMED_BY_SHAPES = ("flop", "shape_times", "stage_times", "gap_")
"""Parts of a query that needs them."""

TABLES_OF_RUNS = (
    "entries", "runs", "facts", "listed_runs", "stage_statistics", "page_statistics", "timed_pages",
    "page_totals", "parity_totals", "shape_times", "flops",
)  # fmt: skip

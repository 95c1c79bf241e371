"""Times of stages: of runs, of their pages, how fast a run was, and B against A page by page."""

from __future__ import annotations

from dsocr_core.runs.queries.query import Query

QUERIES: dict[str, Query] = {}

# Per run, backend and stage: median, p5 and p95 over its pages; imported runs may have mean and std only.
QUERIES["stage_summary"] = Query(
    """
    SELECT runs.run_id, runs.created, backend, stage, inside_prefill, n, median, p5, p95, mean, std
    FROM stage_statistics JOIN runs USING (run_id)
    WHERE $run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id)
    ORDER BY runs.created, run_id, backend, stage
    """,
    {"run_ids": None},
)

# Per run and backend: median and p95 of a page's time, pages and decode tokens a second (of pages read
# together as their bench has it; a page's own beside it), median prefill; means where an import has no more.
QUERIES["pace"] = Query(
    """
    WITH together AS (
        SELECT run_id, split_part(name, '.', 1) AS backend,
               any_value(TRY_CAST(value AS DOUBLE)) FILTER (name LIKE '%.pages_per_s') AS pages_per_s,
               any_value(TRY_CAST(value AS DOUBLE)) FILTER (name LIKE '%.tokens_per_s') AS tokens_per_s
        FROM facts
        WHERE section = 'environment' AND (name LIKE '%.pages_per_s' OR name LIKE '%.tokens_per_s')
        GROUP BY ALL
    ),
    stages AS (
        SELECT run_id, backend,
               any_value(coalesce(median, mean)) FILTER (stage = 'prefill') AS prefill_ms,
               any_value(total) FILTER (stage = 'decode') AS decode_ms,
               any_value(n) FILTER (stage = 'decode') AS decoded
        FROM stage_statistics
        WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id)) GROUP BY ALL
    )
    SELECT run_id, backend, paced.n, paced.median AS page_ms, paced.p95 AS p95_ms, stages.prefill_ms,
           CASE WHEN engine LIKE '% pages together' THEN together.pages_per_s
                ELSE 1000 / nullif(paced.mean, 0) END AS pages_per_s,
           CASE WHEN stages.decoded = page_totals.pages - page_totals.failed
                THEN page_totals.new_tokens / nullif(stages.decode_ms, 0) * 1000 END AS page_tokens_per_s,
           CASE WHEN engine LIKE '% pages together' THEN together.tokens_per_s ELSE page_tokens_per_s END
               AS tokens_per_s
    FROM stages JOIN runs USING (run_id)
    LEFT JOIN page_statistics AS paced USING (run_id, backend)
    LEFT JOIN page_totals USING (run_id, backend) LEFT JOIN together USING (run_id, backend)
    ORDER BY run_id, backend
    """,
    {"run_ids": None},
)

# Per page and stage of A or B: milliseconds in both, and compared, or why it is left out.
QUERIES["coverage"] = Query(
    """
    WITH sides AS (
        SELECT unnest(['a', 'b']) AS side, unnest([$a, $b]) AS run_id,
               unnest([$backend_a, $backend_b]) AS backend
    ),
    image AS (
        SELECT page, min(sha256) <> max(sha256) AS other_image,
               bool_or(error IS NOT NULL) FILTER (side = 'a') AS failed_a,
               bool_or(error IS NOT NULL) FILTER (side = 'b') AS failed_b
        FROM readings JOIN sides USING (run_id, backend) GROUP BY page
    ),
    paired AS (
        SELECT stage, page, median(milliseconds) FILTER (side = 'a') AS a_ms,
               median(milliseconds) FILTER (side = 'b') AS b_ms
        FROM timings JOIN sides USING (run_id, backend)
        WHERE aggregate = 'page' AND page IS NOT NULL GROUP BY stage, page
    )
    SELECT stage, page, a_ms, b_ms,
           CASE
               WHEN other_image THEN 'another image under the same name'
               WHEN a_ms IS NOT NULL AND b_ms IS NOT NULL THEN 'compared'
               WHEN b_ms IS NULL AND failed_b THEN 'failed in B'
               WHEN a_ms IS NULL AND failed_a THEN 'failed in A'
               WHEN b_ms IS NULL AND bool_or(b_ms IS NOT NULL) OVER of_page THEN 'without this stage in B'
               WHEN a_ms IS NULL AND bool_or(a_ms IS NOT NULL) OVER of_page THEN 'without this stage in A'
               WHEN b_ms IS NULL THEN 'not in B'
               ELSE 'not in A'
           END AS outcome
    FROM paired LEFT JOIN image USING (page)
    WINDOW of_page AS (PARTITION BY page)
    ORDER BY stage, page
    """,
)

# Per pair of A and B, run like one of them, stage and page: milliseconds; pages whose image both have. A page
# as a whole ("total") is there where all runs of the pair timed the same stages of it: a sum that lacks one
# is no faster. In no order.
QUERIES["draws"] = Query(
    """
    WITH sides AS (
        SELECT unnest($pairs) AS pair, unnest($sides) AS side, unnest($run_ids) AS run_id,
               unnest($backends::VARCHAR[]) AS backend, unnest($chosen) AS chosen
    ),
    image AS (
        SELECT run_id, page, any_value(sha256) AS sha256 FROM readings
        WHERE list_contains($run_ids, run_id) GROUP BY run_id, page
    ),
    given AS (
        SELECT pair, page, min(sha256) AS sha256, min(sha256) <> max(sha256) AS several
        FROM image JOIN sides USING (run_id) WHERE chosen GROUP BY pair, page
    ),
    measured AS (
        SELECT pair, side, run_id, page, stage, inside_prefill, median(milliseconds) AS ms
        FROM timings JOIN sides USING (run_id, backend)
        WHERE aggregate = 'page' AND page IS NOT NULL GROUP BY ALL
    ),
    same AS (
        SELECT measured.*
        FROM measured LEFT JOIN image USING (run_id, page) LEFT JOIN given USING (pair, page)
        WHERE several IS NOT TRUE AND coalesce(image.sha256 = given.sha256, true)
    ),
    whole AS (
        SELECT pair, side, run_id, page, sum(ms) AS ms, bit_xor(hash(stage)) AS stages
        FROM same WHERE NOT inside_prefill GROUP BY ALL
    )
    SELECT pair, side, run_id, page, stage, ms FROM same
    UNION ALL
    SELECT pair, side, run_id, page, 'total', ms FROM whole WINDOW of_page AS (PARTITION BY pair, page)
    QUALIFY min(stages) OVER of_page = max(stages) OVER of_page
    """,
)

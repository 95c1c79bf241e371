"""B against A, page by page: what can be compared, and why the rest cannot."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, Questions

QUERIES = Questions()
_ask = QUERIES.ask

_ask(
    "coverage",
    "per page and stage of A or B: milliseconds in both, and compared, or why it is left out",
    """
    WITH image AS (
        SELECT page, run_id = $a AND backend = $backend_a AS of_a,
               run_id = $b AND backend = $backend_b AS of_b,
               sha256, error IS NOT NULL AS failed
        FROM read_parquet($files)
        WHERE (run_id = $a AND backend = $backend_a) OR (run_id = $b AND backend = $backend_b)
    ),
    page_state AS (
        SELECT page, bool_or(failed) FILTER (of_a) AS failed_a, bool_or(failed) FILTER (of_b) AS failed_b,
               any_value(sha256) FILTER (of_a) <> any_value(sha256) FILTER (of_b) AS other_image
        FROM image GROUP BY page
    ),
    chosen AS (
        SELECT number, stage, run_id = $a AND backend = $backend_a AS of_a,
               run_id = $b AND backend = $backend_b AS of_b
        FROM series
        WHERE aggregate = 'page'
          AND ((run_id = $a AND backend = $backend_a) OR (run_id = $b AND backend = $backend_b))
    ),
    side AS (
        SELECT stage, times.page AS number, median(milliseconds) FILTER (of_a) AS a_ms,
               median(milliseconds) FILTER (of_b) AS b_ms
        FROM times JOIN chosen ON chosen.number = times.series GROUP BY stage, times.page
    ),
    paired AS (SELECT stage, page_names.page, a_ms, b_ms FROM side JOIN page_names USING (number)),
    present AS (
        SELECT page, bool_or(a_ms IS NOT NULL) AS in_a, bool_or(b_ms IS NOT NULL) AS in_b
        FROM paired GROUP BY page
    )
    SELECT stage, page, a_ms, b_ms,
           CASE
               WHEN coalesce(other_image, false) THEN 'another image under the same name'
               WHEN a_ms IS NOT NULL AND b_ms IS NOT NULL THEN 'compared'
               WHEN b_ms IS NULL AND failed_b THEN 'failed in B'
               WHEN a_ms IS NULL AND failed_a THEN 'failed in A'
               WHEN b_ms IS NULL AND in_b THEN 'stage not measured in B'
               WHEN a_ms IS NULL AND in_a THEN 'stage not measured in A'
               WHEN b_ms IS NULL THEN 'page not in B'
               ELSE 'page not in A'
           END AS outcome
    FROM paired JOIN present USING (page) LEFT JOIN page_state USING (page)
    ORDER BY stage, page
    """,
    "images",
    **dict.fromkeys(("a", "b", "backend_a", "backend_b"), REQUIRED),
)

_ask(
    "draws",
    "per pair of A and B, run like one of them, stage and page: milliseconds; pages whose image both have",
    """
    WITH sides AS (
        SELECT unnest($pairs) AS pair, unnest($sides) AS side, unnest($run_ids) AS run_id,
               unnest($backends::VARCHAR[]) AS backend, unnest($chosen) AS chosen
    ),
    image AS (
        SELECT run_id, page, any_value(sha256) AS sha256 FROM read_parquet($files)
        WHERE list_contains($run_ids, run_id) GROUP BY run_id, page
    ),
    given AS (
        SELECT pair, page, count(DISTINCT sha256) AS images, any_value(sha256) AS sha256
        FROM image JOIN sides USING (run_id) WHERE chosen GROUP BY pair, page
    ),
    measured AS (
        SELECT pair, side, sides.run_id, page_names.page, stage, inside_prefill, median(milliseconds) AS ms
        FROM sides JOIN series ON series.run_id = sides.run_id
             AND series.backend IS NOT DISTINCT FROM sides.backend AND aggregate = 'page'
        JOIN times ON times.series = series.number JOIN page_names ON page_names.number = times.page
        GROUP BY ALL
    )
    SELECT measured.* FROM measured
    LEFT JOIN image ON image.run_id = measured.run_id AND image.page = measured.page
    LEFT JOIN given ON given.pair = measured.pair AND given.page = measured.page
    WHERE coalesce(images, 1) <= 1 AND coalesce(image.sha256 = given.sha256, true)
    ORDER BY ALL
    """,
    "images",
    **dict.fromkeys(("pairs", "sides", "run_ids", "backends", "chosen"), REQUIRED),
)

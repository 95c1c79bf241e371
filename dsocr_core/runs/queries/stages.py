"""Times of stages: of runs, of their pages, and how fast a run was."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, Questions

QUERIES = Questions()
_ask = QUERIES.ask

_ask(
    "stage_summary",
    "per run, backend and stage: median, p5 and p95 over its pages; imported runs may have mean and std only",
    """
    SELECT runs.run_id, runs.created, backend, stage, inside_prefill, n, median, p5, p95, mean, std
    FROM stage_statistics JOIN runs USING (run_id)
    WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id))
      AND ($backends::VARCHAR[] IS NULL OR list_contains($backends, backend))
      AND ($stages::VARCHAR[] IS NULL OR list_contains($stages, stage))
    ORDER BY runs.created, run_id, backend, stage
    """,
    run_ids=None,
    backends=None,
    stages=None,
)

_ask(
    "page_totals",
    "time of each page of the chosen runs: the sum of the stages that follow one another, vision not added",
    """
    SELECT run_id, page, backend, sum(milliseconds) AS milliseconds,
           list(DISTINCT stage ORDER BY stage) AS stages
    FROM stage_timings
    WHERE list_contains($run_ids, run_id) AND aggregate = 'page' AND NOT inside_prefill
      AND ($backends::VARCHAR[] IS NULL OR list_contains($backends, backend))
    GROUP BY run_id, page, backend ORDER BY run_id, page, backend
    """,
    run_ids=REQUIRED,
    backends=None,
)

_PACE = """
    WITH page AS (
        SELECT series.run_id, series.backend, times.page, sum(times.milliseconds) AS ms
        FROM times JOIN series ON series.number = times.series
        WHERE series.aggregate = 'page' AND NOT series.inside_prefill
          AND ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, series.run_id))
        GROUP BY ALL
    ),
    paced AS (
        SELECT run_id, backend, count(*) AS n, median(ms) AS page_ms, quantile_cont(ms, 0.95) AS p95_ms,
               1000 / nullif(avg(ms), 0) AS one_by_one
        FROM page GROUP BY ALL
    ),
    together AS (
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
    SELECT run_id, backend, paced.n, paced.page_ms, paced.p95_ms, stages.prefill_ms,
           CASE WHEN engine LIKE '% pages together' THEN together.pages_per_s ELSE one_by_one END
               AS pages_per_s,
           CASE WHEN stages.decoded = page_totals.pages - page_totals.failed
                THEN page_totals.new_tokens / nullif(stages.decode_ms, 0) * 1000 END AS page_tokens_per_s,
           CASE WHEN engine LIKE '% pages together' THEN together.tokens_per_s ELSE page_tokens_per_s END
               AS tokens_per_s
    FROM stages JOIN runs USING (run_id)
    LEFT JOIN paced USING (run_id, backend) LEFT JOIN page_totals USING (run_id, backend)
    LEFT JOIN together USING (run_id, backend)
"""

_ask(
    "pace",
    "per run and backend: median and p95 of a page's time, pages and decode tokens a second (of pages read "
    "together as their bench has it; a page's own beside it), median prefill; means where an imported run "
    "has nothing else",
    f"{_PACE} ORDER BY run_id, backend",
    run_ids=None,
)

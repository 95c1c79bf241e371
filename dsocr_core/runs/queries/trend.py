"""One run after another: the trend chart, and which pages two runs share."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, RUN_FILTER, RUN_FILTERS, WORK, Questions

QUERIES = Questions()
_ask = QUERIES.ask

_WORK_COLUMNS = ", ".join(f"runs.{name}" for name in WORK)

_ask(
    "trend",
    "a stage's statistics of one run after another; profiled runs only when asked for",
    f"""
    SELECT runs.run_id, runs.created, runs.git_commit, runs.gpu, runs.engine, {_WORK_COLUMNS}, backend, stage,
           n, median, p5, p95, mean, std
    FROM stage_statistics JOIN listed AS runs USING (run_id)
    WHERE stage = $stage AND backend = $backend AND {RUN_FILTER}
    ORDER BY runs.created, runs.run_id
    """,
    **RUN_FILTERS | {"profiled": False, "contended": False},
    stage=REQUIRED,
    backend=REQUIRED,
)

_ask(
    "page_trend",
    "one page's time of a stage in one run after another",
    f"""
    SELECT runs.run_id, runs.created, runs.git_commit, runs.gpu, runs.engine, {_WORK_COLUMNS},
           median(milliseconds) AS milliseconds
    FROM times
    JOIN page_names ON page_names.number = times.page AND page_names.page = $page
    JOIN series ON series.number = times.series AND series.stage = $stage AND series.backend = $backend
         AND series.aggregate = 'page'
    JOIN listed AS runs USING (run_id)
    WHERE {RUN_FILTER}
    GROUP BY ALL ORDER BY runs.created, runs.run_id
    """,
    **RUN_FILTERS | {"profiled": False, "contended": False},
    page=REQUIRED,
    stage=REQUIRED,
    backend=REQUIRED,
)

_ask(
    "common_pages",
    "pairs of the chosen runs, the later one as b: how many pages both have timed",
    """
    WITH timed AS (
        SELECT DISTINCT series.run_id, times.page
        FROM times JOIN series ON series.number = times.series
        WHERE series.aggregate = 'page' AND list_contains($run_ids, series.run_id)
    )
    SELECT one.run_id AS a, other.run_id AS b, count(*) AS pages
    FROM timed AS one JOIN timed AS other USING (page)
    JOIN runs AS of_one ON of_one.run_id = one.run_id JOIN runs AS of_other ON of_other.run_id = other.run_id
    WHERE (of_one.created, one.run_id) < (of_other.created, other.run_id)
    GROUP BY ALL ORDER BY pages DESC, max(of_other.created) DESC, max(of_one.created) DESC, b DESC, a DESC
    """,
    run_ids=REQUIRED,
)

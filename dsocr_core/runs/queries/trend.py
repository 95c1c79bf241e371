"""One run after another: the trend chart."""

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

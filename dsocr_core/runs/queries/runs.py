"""Runs, what was noted about them, in what they differ, and rows that are read from their files."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, Query

QUERIES: dict[str, Query] = {}

# The runs that pass the filters, newest first, with their marks and what is in them; NULL filters nothing.
QUERIES["runs"] = Query(
    """
    SELECT * EXCLUDE (prompt) FROM listed
    WHERE ($trashed::BOOLEAN IS NULL OR trashed = $trashed)
      AND ($profiled::BOOLEAN IS NULL OR profiled = $profiled)
      AND ($contended::BOOLEAN IS NULL OR contended = $contended)
      AND ($backends::VARCHAR[] IS NULL OR list_has_any(backends, $backends))
      AND ($tags::VARCHAR[] IS NULL OR list_has_any(tags, $tags))
      AND ($gpus::VARCHAR[] IS NULL OR list_contains($gpus, gpu))
      AND ($commits::VARCHAR[] IS NULL OR list_contains($commits, git_commit))
    ORDER BY created DESC, run_id DESC
    LIMIT $limit
    """,
    dict.fromkeys(("profiled", "contended", "backends", "tags", "gpus", "commits", "limit"))
    | {"trashed": False},
)

_SETTING = (
    "source, engine, device, gpu, host, dtype, attention, preset, profiled, checkpoint, prompt, "
    "max_new_tokens, no_repeat_ngram_size, policy"
)

# Per run of a commit and backend, newest first: its machine and setting as one number, the pages timed.
QUERIES["settings"] = Query(
    f"""
    WITH timed AS (
        SELECT run_id, backend, list_sort(list(DISTINCT regexp_replace(page, ' #[0-9]+\\z', ''))) AS pages
        FROM timed_pages WHERE list_contains($run_ids, run_id) GROUP BY ALL
    )
    SELECT run_id, git_commit, git_dirty, timed.backend, timed.pages, hash({_SETTING}) AS setting
    FROM listed JOIN timed USING (run_id) WHERE git_commit IS NOT NULL
    ORDER BY created DESC, run_id DESC, backend
    """,
    {"run_ids": REQUIRED},
)

# What decides the times of runs as one number, the same for runs of one commit, machine and setting; newest
# first.
QUERIES["kinds"] = Query(
    f"""
    SELECT run_id, contended, trashed,
           hash({_SETTING}, git_commit, git_dirty, CASE WHEN git_commit IS NULL THEN run_id END) AS kind
    FROM listed ORDER BY created DESC, run_id DESC
    """
)

# What there is to filter by: values of each filter and how many runs have them.
QUERIES["filter_values"] = Query(
    """
    SELECT name, value, count(*) AS runs
    FROM (
        SELECT 'gpus' AS name, gpu AS value FROM runs UNION ALL SELECT 'commits', git_commit FROM runs
        UNION ALL SELECT 'backends', unnest(backends) FROM runs
        UNION ALL SELECT 'tags', unnest(tags) FROM marks
    )
    WHERE value IS NOT NULL GROUP BY name, value ORDER BY name, runs DESC, value
    """
)

# Settings, environment and versions of runs, one row a value.
QUERIES["facts"] = Query(
    """
    SELECT run_id, section, name, value FROM facts WHERE list_contains($run_ids, run_id)
    ORDER BY section, name, list_position($run_ids, run_id)
    """,
    {"run_ids": REQUIRED},
)

# Everything that was noted about a run, in order.
QUERIES["annotations"] = Query(
    """
    SELECT time, kind, page, name, value FROM annotations
    WHERE run_id = $run_id AND ($kind::VARCHAR IS NULL OR kind = $kind) ORDER BY position
    """,
    {"run_id": REQUIRED, "kind": None},
)

# Every row that reviewers wrote about pages of a run, oldest first; an undo names the row it takes back.
QUERIES["verdicts"] = Query(
    """
    SELECT run_id, page, name AS reviewer, position, given ->> 'id' AS id, given ->> 'time' AS time,
           given ->> 'review' AS review, given ->> 'verdict' AS verdict, given ->> 'label' AS label,
           given ->> 'comment' AS comment, given ->> 'undoes' AS undoes
    FROM (SELECT *, TRY_CAST(value AS JSON) AS given FROM annotations WHERE kind = 'verdict')
    WHERE page IS NOT NULL AND id IS NOT NULL AND run_id = $run_id ORDER BY time, position
    """,
    {"run_id": REQUIRED},
)

# --- read from the runs' files when they are asked for ---------------------------------------------

# Sums of kernels: the longest of each run and stage, with their share of its GPU time.
QUERIES["kernels"] = Query(
    """
    SELECT run_id, stage, name, total_ns, instances, avg_ns, med_ns, min_ns, max_ns, stddev_ns, time_percent,
           total_ns / nullif(sum(total_ns) OVER (PARTITION BY run_id, stage), 0) AS share
    FROM read_parquet($kernels)
    WHERE list_contains($run_ids, run_id) AND ($stages::VARCHAR[] IS NULL OR list_contains($stages, stage))
    QUALIFY row_number() OVER (PARTITION BY run_id, stage ORDER BY total_ns DESC, name) <= $top
    ORDER BY run_id, stage NULLS FIRST, total_ns DESC, name
    """,
    {"run_ids": REQUIRED, "stages": None, "top": 20},
)

# Launches that Nsight Compute profiled and every figure that it took of them, in the order of the profile;
# backends compared tensor by tensor.
for _name, _table, _order in (
    ("launches", "kernel_launches", "number"),
    ("launch_metrics", "kernel_metrics", "number, section, metric"),
    ("traces", "traces", "page, a, b, steps"),
):
    QUERIES[_name] = Query(
        f"""
        FROM read_parquet(${_table}) WHERE list_contains($run_ids, run_id)
        ORDER BY list_position($run_ids, run_id), {_order}
        """,
        {"run_ids": REQUIRED},
    )

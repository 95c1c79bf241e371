"""Runs, what was noted about them, and in what they differ."""

from __future__ import annotations

from dsocr_core.runs.queries.query import REQUIRED, RUN_FILTER, RUN_FILTERS, Query

QUERIES: dict[str, Query] = {}

# The runs that pass the filters, newest first, with their marks and what is in them.
QUERIES["runs"] = Query(
    f"""
    SELECT * EXCLUDE (prompt) FROM listed AS runs
    WHERE {RUN_FILTER}
      AND ($text::VARCHAR IS NULL OR contains(lower(concat_ws(chr(10), runs.run_id, runs.command, runs.notes,
           runs.note, array_to_string(runs.tags, chr(10)))), lower($text)))
    ORDER BY runs.created DESC, runs.run_id DESC
    LIMIT $limit
    """,
    {**RUN_FILTERS, "text": None, "limit": None},
)

_SETTING = (
    "source, engine, device, gpu, host, dtype, attention, preset, profiled, checkpoint, prompt, "
    "max_new_tokens, no_repeat_ngram_size, policy"
)

# Per run of a commit and backend, newest first: its machine and setting as one number, the pages timed.
QUERIES["settings"] = Query(
    f"""
    WITH timed AS (
        SELECT series.run_id, series.backend,
               list_sort(list(DISTINCT regexp_replace(page_names.page, ' #[0-9]+\\z', ''))) AS pages
        FROM series JOIN times ON times.series = series.number
        JOIN page_names ON page_names.number = times.page
        WHERE series.aggregate = 'page' AND list_contains($run_ids, series.run_id) GROUP BY ALL
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
           hash({_SETTING}, git_commit, git_dirty, CASE WHEN git_commit IS NULL THEN run_id END) AS kind,
           regexp_extract(engine, '[0-9]+ pages together') AS together
    FROM listed ORDER BY created DESC, run_id DESC
    """
)

# What there is to filter by: values of each filter and how many runs have them.
QUERIES["filter_values"] = Query(
    """
    SELECT name, value, count(*) AS runs
    FROM (
        SELECT run_id, unnest(['sources', 'engines', 'gpus', 'hosts', 'dtypes', 'attentions', 'presets',
                               'commits']) AS name,
               unnest([source, engine, gpu, host, dtype, attention, preset, git_commit]) AS value
        FROM runs
        UNION ALL SELECT run_id, 'backends', unnest(backends) FROM runs
        UNION ALL SELECT run_id, 'tags', unnest(tags) FROM marks
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

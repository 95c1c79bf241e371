"""Runs, what was noted about them, in what they differ, and rows that are read from their files."""

from __future__ import annotations

from dsocr_core.reading.records import POLICY_FIELDS
from dsocr_core.runs.labels import PUBLISHED
from dsocr_core.runs.queries.query import Query
from dsocr_core.runs.record import flattened
from dsocr_core.runs.schema import TABLES
from dsocr_core.settings import InferSettings

QUERIES: dict[str, Query] = {}
NOTED = """
CREATE OR REPLACE TABLE memory.main.annotations AS FROM given_rows;
CREATE OR REPLACE TABLE memory.main.marks AS
    SELECT run_id,
           coalesce(list(name ORDER BY name) FILTER (kind = 'tag' AND value = 'on'), []) AS tags,
           max(nullif(value, '')) FILTER (kind = 'note') AS note,
           coalesce(bool_or(value = 'on') FILTER (kind = 'trash'), false) AS trashed
    FROM (
        SELECT run_id, kind, name, arg_max(coalesce(value, ''), position) AS value
        FROM memory.main.annotations WHERE page IS NULL GROUP BY run_id, kind, name
    )
    GROUP BY run_id;
CREATE OR REPLACE VIEW memory.main.listed AS
    SELECT runs.*, coalesce(marks.tags, []) AS tags, marks.note, coalesce(marks.trashed, false) AS trashed
    FROM runs LEFT JOIN marks USING (run_id)
"""
"""Tables beside the file: all that was noted, the `given_rows`, and what of it stands of each run."""

# What decides how much work a page is, with what `described` has; NULL where a run's settings do not say.
_PUBLISHED = {name: getattr(InferSettings(), name) for name in POLICY_FIELDS}
"""Settings in which other engines differ from the published code, with what it does."""
_names = ", ".join(f"'infer.{name}'" for name in _PUBLISHED)
_published = ", ".join(f"('infer.{name}', '{value}')" for name, value in flattened(_PUBLISHED))
LISTED = f"""
    SELECT described.*, described.run_id IN (
               SELECT run_id FROM facts
               WHERE section = 'environment' AND name = 'machine.contended' AND value = 'true'
           ) AS contended,
           totals.pages, totals.failed, totals.new_tokens,
           parity_totals.pages AS compared,
           parity_totals.* EXCLUDE (run_id, pages),
           work.* EXCLUDE (run_id)
    FROM described
    LEFT JOIN (
        SELECT run_id, max(pages) AS pages, sum(failed) AS failed, sum(new_tokens) AS new_tokens
        FROM page_totals GROUP BY run_id
    ) AS totals USING (run_id)
    LEFT JOIN parity_totals USING (run_id)
    LEFT JOIN (
        SELECT run_id, any_value(value) FILTER (name = 'checkpoint') AS checkpoint,
               any_value(value) FILTER (name = 'prompt') AS prompt,
               any_value(value) FILTER (name = 'infer.max_new_tokens') AS max_new_tokens,
               any_value(value) FILTER (name = 'infer.no_repeat_ngram_size') AS no_repeat_ngram_size,
               nullif(any_value(value) FILTER (name = 'draft'), '') AS draft,
               coalesce(
                   string_agg(replace(name, 'infer.', '') || ' ' || value, ', ' ORDER BY name)
                   FILTER (name IN ({_names}) AND (name, value) NOT IN ({_published})),
                   '{PUBLISHED}'
               ) AS policy
        FROM facts SEMI JOIN described USING (run_id) WHERE section = 'settings' GROUP BY run_id
    ) AS work USING (run_id)
"""
"""The table `runs`, of those that are `described`: such joins take longer than asking."""

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
    SELECT run_id, git_commit, git_dirty, timed.backend, page_sets.pages, hash({_SETTING}) AS setting
    FROM listed JOIN page_statistics AS timed USING (run_id) JOIN page_sets USING (page_set)
    WHERE git_commit IS NOT NULL AND list_contains($run_ids, run_id)
    ORDER BY created DESC, run_id DESC, backend
    """,
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
)

# Everything that was noted about a run, in order.
QUERIES["annotations"] = Query(
    """
    SELECT time, kind, page, name, value FROM annotations
    WHERE run_id = $run_id AND ($kind::VARCHAR IS NULL OR kind = $kind) ORDER BY position
    """,
    {"kind": None},
)

# Every row that reviewers wrote about pages of a run, oldest first; an undo names the row it takes back.
QUERIES["verdicts"] = Query(
    """
    SELECT run_id, page, name AS reviewer, position, given ->> 'id' AS id, given ->> 'time' AS time,
           given ->> 'review' AS review, given ->> 'verdict' AS verdict, given ->> 'undoes' AS undoes,
           left(concat_ws(': ', nullif(given ->> 'label', ''), given ->> 'comment'), 4000) AS comment
    FROM (SELECT *, TRY_CAST(value AS JSON) AS given FROM annotations WHERE kind = 'verdict')
    WHERE page IS NOT NULL AND id IS NOT NULL AND run_id = $run_id ORDER BY time, position
    """,
)

# --- read from the runs' files when they are asked for ---------------------------------------------

# Sums of kernels: the longest of each run and stage, with their share of its GPU time.
QUERIES["kernels"] = Query(
    """
    SELECT run_id, stage, name, total_ns, instances, avg_ns, med_ns, min_ns, max_ns, stddev_ns, time_percent,
           total_ns / nullif(sum(total_ns) OVER (PARTITION BY run_id, stage), 0) AS share
    FROM kernels
    WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[]))
      AND ($stages::VARCHAR[] IS NULL OR list_contains($stages, stage))
    QUALIFY row_number() OVER (PARTITION BY run_id, stage ORDER BY total_ns DESC, name) <= $top
    ORDER BY run_id, stage NULLS FIRST, total_ns DESC, name
    """,
    {"stages": None, "top": 20},
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
        SELECT {", ".join(TABLES[_table].names)} FROM {_table} WHERE list_contains($run_ids, run_id)
        ORDER BY list_position($run_ids, run_id), {_order}
        """
    )

"""Every question that the pages and the command line ask the history: the SQL, its parameters bound.

A question's text never changes with what is asked; values travel beside it. What a page shows as "the SQL"
has the values written in, quoted, so that it runs as it stands in `history sql`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import duckdb

from dsocr_core.errors import one_line
from dsocr_core.history.database import flattened
from dsocr_core.records import POLICY_FIELDS
from dsocr_core.settings import InferSettings

REQUIRED: Any = ...
"""Default of a parameter that has to be given."""


@dataclass(frozen=True)
class Query:
    """One question. `table` names a table that is read, when asked, from the files of the chosen runs."""

    why: str
    sql: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    table: str | None = None

    def chosen(self, values: Mapping[str, Any]) -> list[str]:
        """The runs that the values name."""
        return list(values["run_ids"]) if "run_ids" in self.parameters else [values["a"], values["b"]]

    def shown(self, values: Mapping[str, Any]) -> str:
        """The SQL with its values written in, for people to run."""
        text = self.sql.strip().replace("read_parquet($files)", self.table or "")
        # In one pass: a value may hold a parameter's name.
        return re.sub(r"\$([a-z_]+)", lambda found: literal(values[found[1]]), text)


def literal(value: Any) -> str:
    """A value as SQL text."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(literal(item) for item in value)}]"
    return "'" + str(value).replace("'", "''") + "'"


def select_only(statement: str) -> str | None:
    """Why a statement of a person is not run; None when it is one SELECT, or the explanation of one.

    What a SELECT itself may not do, the database refuses (`snapshot`).
    """
    try:
        statement.encode()
        statements = duckdb.extract_statements(statement)
        kinds = [each.type for each in statements]
        if kinds == [duckdb.StatementType.EXPLAIN]:
            # EXPLAIN ANALYZE runs what it explains.
            kinds = [each.type for each in duckdb.extract_statements(_EXPLAIN.sub("", statement, count=1))]
    except (duckdb.Error, UnicodeEncodeError) as error:
        return f"SQL: {one_line(error, 500)}"
    if len(statements) != 1:
        return "SQL: give one statement"
    if kinds != [duckdb.StatementType.SELECT]:
        return "SQL: only SELECT can be run here; the history is changed by its own commands"
    return None


_EXPLAIN = re.compile(r"\s*EXPLAIN\s*(\([^()]*\)|(ANALYZE\b)?)", re.IGNORECASE)


# Filters that several questions share: each NULL means "any".
_RUN_FILTER = """
    ($trashed::BOOLEAN IS NULL OR coalesce(marks.trashed, false) = $trashed)
    AND ($profiled::BOOLEAN IS NULL OR runs.profiled = $profiled)
    AND ($sources::VARCHAR[] IS NULL OR list_contains($sources, runs.source))
    AND ($backends::VARCHAR[] IS NULL OR list_has_any(runs.backends, $backends))
    AND ($engines::VARCHAR[] IS NULL OR list_contains($engines, runs.engine))
    AND ($gpus::VARCHAR[] IS NULL OR list_contains($gpus, runs.gpu))
    AND ($hosts::VARCHAR[] IS NULL OR list_contains($hosts, runs.host))
    AND ($dtypes::VARCHAR[] IS NULL OR list_contains($dtypes, runs.dtype))
    AND ($attentions::VARCHAR[] IS NULL OR list_contains($attentions, runs.attention))
    AND ($presets::VARCHAR[] IS NULL OR list_contains($presets, runs.preset))
    AND ($commits::VARCHAR[] IS NULL OR list_contains($commits, runs.git_commit))
    AND ($tags::VARCHAR[] IS NULL OR list_has_any(marks.tags, $tags))
    AND ($since::TIMESTAMP IS NULL OR runs.created >= $since)
    AND ($until::TIMESTAMP IS NULL OR runs.created < $until)
    AND ($contended::BOOLEAN IS NULL OR runs.run_id IN (
        SELECT run_id FROM facts
        WHERE section = 'environment' AND name = 'machine.contended' AND value = 'true'
    ) = $contended)
"""
RUN_FILTERS: dict[str, Any] = {
    "trashed": False,
    **dict.fromkeys(
        (
            "profiled", "sources", "backends", "engines", "gpus", "hosts", "dtypes", "attentions", "presets",
            "commits", "tags", "since", "until", "contended",
        )
    ),
}  # fmt: skip
"""Filters of `runs` and of every trend, with what they are when not given."""

QUERIES: dict[str, Query] = {}


def _ask(name: str, why: str, sql: str, table: str | None = None, **parameters: Any) -> None:
    QUERIES[name] = Query(why, sql, parameters, table)


# --- runs ---------------------------------------------------------------------------------------

_ask(
    "runs",
    "the runs that pass the filters, newest first, with their marks and what is in them",
    f"""
    SELECT runs.*, runs.run_id IN (
               SELECT run_id FROM facts
               WHERE section = 'environment' AND name = 'machine.contended' AND value = 'true'
           ) AS contended,
           coalesce(marks.tags, []) AS tags, marks.note, coalesce(marks.trashed, false) AS trashed,
           totals.pages, totals.failed, totals.new_tokens,
           parity_totals.pages AS compared, parity_totals.passed, parity_totals.identical,
           parity_totals.within_tolerance, parity_totals.differs, parity_totals.not_comparable
    FROM runs
    LEFT JOIN marks USING (run_id)
    LEFT JOIN (
        SELECT run_id, max(pages) AS pages, sum(failed) AS failed, sum(new_tokens) AS new_tokens
        FROM page_totals GROUP BY run_id
    ) AS totals USING (run_id)
    LEFT JOIN parity_totals USING (run_id)
    WHERE {_RUN_FILTER}
      AND ($text::VARCHAR IS NULL OR contains(lower(concat_ws(chr(10), runs.run_id, runs.command, runs.notes,
           marks.note, array_to_string(marks.tags, chr(10)))), lower($text)))
    ORDER BY runs.created DESC, runs.run_id DESC
    LIMIT $limit
    """,
    **RUN_FILTERS,
    text=None,
    limit=None,
)

_ask(
    "filter_values",
    "what there is to filter by: values of each filter and how many runs have them",
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
    """,
)

_ask(
    "facts",
    "settings, environment and versions of runs, one row a value",
    """
    SELECT run_id, section, name, value FROM facts
    WHERE list_contains($run_ids, run_id) AND ($section::VARCHAR IS NULL OR section = $section)
    ORDER BY section, name, list_position($run_ids, run_id)
    """,
    run_ids=REQUIRED,
    section=None,
)

_ask(
    "differences",
    "settings, environment and versions in which the chosen runs differ; NULL where a run has no such value",
    """
    WITH chosen AS (SELECT unnest($run_ids) AS run_id),
    named AS (
        SELECT DISTINCT section, name FROM facts WHERE list_contains($run_ids, run_id)
    ),
    filled AS (
        SELECT section, name, run_id, any_value(facts.value) AS value
        FROM named CROSS JOIN chosen LEFT JOIN facts USING (section, name, run_id)
        GROUP BY section, name, run_id
    ),
    differing AS (
        SELECT section, name FROM filled GROUP BY section, name
        HAVING count(DISTINCT value) > 1 OR (count(value) > 0 AND count(value) < count(*))
    )
    SELECT section, name, run_id, value FROM filled SEMI JOIN differing USING (section, name)
    WHERE ($section::VARCHAR IS NULL OR section = $section)
    ORDER BY section, name, list_position($run_ids, run_id)
    """,
    run_ids=REQUIRED,
    section=None,
)

_ask(
    "annotations",
    "everything that was noted about a run, in order",
    """
    SELECT time, kind, page, name, value FROM annotations
    WHERE run_id = $run_id AND ($kind::VARCHAR IS NULL OR kind = $kind) ORDER BY position
    """,
    run_id=REQUIRED,
    kind=None,
)

_ask(
    "page_marks",
    "the latest row about each page of a run, by kind and name (verdicts of a review)",
    """
    SELECT page, kind, name, arg_max(value, position) AS value, max(time) AS time FROM annotations
    WHERE run_id = $run_id AND page IS NOT NULL GROUP BY page, kind, name ORDER BY page, kind, name
    """,
    run_id=REQUIRED,
)

_VERDICTS = """
    SELECT run_id, page, name AS reviewer, position, given ->> 'id' AS id, given ->> 'time' AS time,
           given ->> 'review' AS review, given ->> 'verdict' AS verdict, given ->> 'label' AS label,
           given ->> 'comment' AS comment, given ->> 'undoes' AS undoes
    FROM (SELECT *, TRY_CAST(value AS JSON) AS given FROM annotations WHERE kind = 'verdict')
    WHERE page IS NOT NULL AND id IS NOT NULL
"""

_ask(
    "verdicts",
    "every row that reviewers wrote about pages of a run, oldest first; an undo names the row it takes back",
    f"{_VERDICTS} AND run_id = $run_id ORDER BY time, position",
    run_id=REQUIRED,
)

_ask(
    "verdict_counts",
    "per run and review: how many pages have which verdict; the latest of each reviewer counts",
    f"""
    WITH written AS ({_VERDICTS}),
    latest AS (
        SELECT run_id, review, page, reviewer, arg_max(verdict, (time, position)) AS verdict
        FROM written ANTI JOIN (SELECT run_id, reviewer, undoes AS id FROM written WHERE undoes IS NOT NULL)
             USING (run_id, reviewer, id)
        WHERE verdict IS NOT NULL GROUP BY run_id, review, page, reviewer
    )
    SELECT run_id, review, count(DISTINCT page) AS reviewed,
           count(*) FILTER (verdict = 'same') AS same, count(*) FILTER (verdict = 'acceptable') AS acceptable,
           count(*) FILTER (verdict = 'wrong') AS wrong, count(*) FILTER (verdict = 'unsure') AS unsure,
           list(DISTINCT reviewer ORDER BY reviewer) AS reviewers
    FROM latest GROUP BY run_id, review ORDER BY run_id, review
    """,
)

# --- stages -------------------------------------------------------------------------------------

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
    "page_timings",
    "every page's time of the chosen runs, or one page's",
    """
    SELECT run_id, page, backend, stage, milliseconds, calls, inside_prefill
    FROM stage_timings
    WHERE list_contains($run_ids, run_id) AND aggregate = 'page'
      AND ($backends::VARCHAR[] IS NULL OR list_contains($backends, backend))
      AND ($stages::VARCHAR[] IS NULL OR list_contains($stages, stage))
      AND ($page::VARCHAR IS NULL OR page = $page)
    ORDER BY list_position($run_ids, run_id), page, backend, stage
    """,
    run_ids=REQUIRED,
    backends=None,
    stages=None,
    page=None,
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

_ask(
    "throughput",
    "new tokens a second of decode, per run and backend, over its pages",
    f"""
    SELECT runs.run_id, runs.created, page_totals.backend, page_totals.new_tokens,
           stage_statistics.total AS decode_ms,
           page_totals.new_tokens / nullif(stage_statistics.total, 0) * 1000 AS tokens_per_s
    FROM runs JOIN page_totals USING (run_id)
    JOIN stage_statistics ON stage_statistics.run_id = runs.run_id
         AND stage_statistics.backend = page_totals.backend AND stage_statistics.stage = 'decode'
         AND stage_statistics.n = page_totals.pages - page_totals.failed
    LEFT JOIN marks ON marks.run_id = runs.run_id
    WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, runs.run_id)) AND {_RUN_FILTER}
    ORDER BY runs.created, runs.run_id, page_totals.backend
    """,
    **RUN_FILTERS,
    run_ids=None,
)

_ask(
    "pace",
    "per run and backend: median seconds a page, decode tokens a second, median prefill; means where an "
    "imported run has nothing else",
    """
    WITH page AS (
        SELECT series.run_id, series.backend, times.page, sum(times.milliseconds) AS ms
        FROM times JOIN series ON series.number = times.series
        WHERE series.aggregate = 'page' AND NOT series.inside_prefill
          AND ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, series.run_id))
        GROUP BY ALL
    ),
    paced AS (SELECT run_id, backend, count(*) AS n, median(ms) AS page_ms FROM page GROUP BY ALL),
    stages AS (
        SELECT run_id, backend,
               any_value(coalesce(median, mean)) FILTER (stage = 'prefill') AS prefill_ms,
               any_value(total) FILTER (stage = 'decode') AS decode_ms,
               any_value(n) FILTER (stage = 'decode') AS decoded
        FROM stage_statistics
        WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id)) GROUP BY ALL
    )
    SELECT run_id, backend, paced.n, paced.page_ms, stages.prefill_ms,
           CASE WHEN stages.decoded = page_totals.pages - page_totals.failed
                THEN page_totals.new_tokens / nullif(stages.decode_ms, 0) * 1000 END AS tokens_per_s
    FROM stages LEFT JOIN paced USING (run_id, backend) LEFT JOIN page_totals USING (run_id, backend)
    ORDER BY run_id, backend
    """,
    run_ids=None,
)

_ask(
    "earlier_readings",
    "per backend: what one page took in unprofiled runs of one machine, preset and checkpoint",
    """
    WITH page AS (
        SELECT series.run_id, series.backend, sum(times.milliseconds) AS ms
        FROM times
        JOIN page_names ON page_names.number = times.page AND page_names.page = $page
        JOIN series ON series.number = times.series
        WHERE series.aggregate = 'page' AND NOT series.inside_prefill
        GROUP BY ALL
    )
    SELECT page.backend, count(*) AS n, median(page.ms) AS page_ms, min(page.ms) AS low_ms,
           max(page.ms) AS high_ms
    FROM page JOIN runs USING (run_id) LEFT JOIN marks USING (run_id)
    WHERE NOT coalesce(marks.trashed, false) AND runs.profiled IS NOT TRUE
      AND runs.host = $host AND runs.preset = $preset
      AND ($dtype::VARCHAR IS NULL OR runs.dtype = $dtype)
      AND runs.run_id IN (
          SELECT run_id FROM facts
          WHERE section = 'settings' AND name = 'checkpoint' AND value = $checkpoint
      )
    GROUP BY page.backend ORDER BY page.backend
    """,
    page=REQUIRED,
    host=REQUIRED,
    preset=REQUIRED,
    checkpoint=REQUIRED,
    dtype=None,
)

_ask(
    "against_baseline",
    "per run: median page times of it and of the baseline, over the pages that both have timed",
    """
    WITH page AS (
        SELECT series.run_id, series.backend, times.page, sum(times.milliseconds) AS ms
        FROM times JOIN series ON series.number = times.series
        WHERE series.aggregate = 'page' AND NOT series.inside_prefill
          AND (list_contains($run_ids, series.run_id) OR series.run_id = $baseline)
        GROUP BY ALL
    ),
    baseline AS (SELECT page, ms FROM page WHERE run_id = $baseline AND backend = $backend)
    SELECT page.run_id, page.backend, count(*) AS n, median(page.ms) AS page_ms,
           median(baseline.ms) AS baseline_ms
    FROM page JOIN baseline USING (page) WHERE list_contains($run_ids, page.run_id)
    GROUP BY ALL ORDER BY page.run_id, page.backend
    """,
    run_ids=REQUIRED,
    baseline=REQUIRED,
    backend=REQUIRED,
)

# --- over time ----------------------------------------------------------------------------------

# What decides how much work a page is, beside what `runs` has; NULL where a run's settings do not say.
_PUBLISHED = {name: getattr(InferSettings(), name) for name in POLICY_FIELDS}
"""Settings in which other engines differ from the published code, with what it does."""
_names = ", ".join(f"'infer.{name}'" for name in _PUBLISHED)
_published = ", ".join(f"('infer.{name}', '{value}')" for name, value in flattened(_PUBLISHED))
_WORK = f"""
    (
        SELECT run_id, any_value(value) FILTER (name = 'checkpoint') AS checkpoint,
               any_value(value) FILTER (name = 'prompt') AS prompt,
               any_value(value) FILTER (name = 'infer.max_new_tokens') AS max_new_tokens,
               any_value(value) FILTER (name = 'infer.no_repeat_ngram_size') AS no_repeat_ngram_size,
               coalesce(
                   string_agg(replace(name, 'infer.', '') || ' ' || value, ', ' ORDER BY name)
                   FILTER (name IN ({_names}) AND (name, value) NOT IN ({_published})),
                   'as published'
               ) AS policy
        FROM facts WHERE section = 'settings' GROUP BY run_id
    ) AS work
"""
_WORK_COLUMNS = "work.checkpoint, work.prompt, work.max_new_tokens, work.no_repeat_ngram_size, work.policy"

_ask(
    "trend",
    "a stage's statistics of one run after another; profiled runs only when asked for",
    f"""
    SELECT runs.run_id, runs.created, runs.git_commit, runs.gpu, runs.engine, {_WORK_COLUMNS}, backend, stage,
           n, median, p5, p95, mean, std
    FROM stage_statistics JOIN runs USING (run_id) LEFT JOIN marks USING (run_id)
    LEFT JOIN {_WORK} USING (run_id)
    WHERE stage = $stage AND backend = $backend AND {_RUN_FILTER}
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
    JOIN runs USING (run_id) LEFT JOIN marks USING (run_id) LEFT JOIN {_WORK} USING (run_id)
    WHERE {_RUN_FILTER}
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

# --- A against B --------------------------------------------------------------------------------

_SIDES = """
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
    measured AS (
        SELECT series, times.page, stage, of_a, of_b, milliseconds
        FROM times JOIN chosen ON chosen.number = times.series
    ),
    paired AS (
        SELECT stage, page_names.page, side.a_ms, side.b_ms
        FROM (
            SELECT stage, page, median(milliseconds) FILTER (of_a) AS a_ms,
                   median(milliseconds) FILTER (of_b) AS b_ms
            FROM measured GROUP BY stage, page
        ) AS side
        JOIN page_names ON page_names.number = side.page
    )
"""
_TWO_SIDES: dict[str, Any] = dict.fromkeys(("a", "b", "backend_a", "backend_b"), REQUIRED)

_ask(
    "pairs",
    "per page and stage: milliseconds in run A and in run B, for pages both have with the same image",
    f"""
    {_SIDES}
    SELECT stage, page, a_ms, b_ms FROM paired LEFT JOIN page_state USING (page)
    WHERE a_ms IS NOT NULL AND b_ms IS NOT NULL AND NOT coalesce(other_image, false)
    ORDER BY stage, page
    """,
    "images",
    **_TWO_SIDES,
)

_ask(
    "coverage",
    "per page and stage of A or B: compared, or why it is left out",
    f"""
    {_SIDES},
    present AS (
        SELECT page, bool_or(a_ms IS NOT NULL) AS in_a, bool_or(b_ms IS NOT NULL) AS in_b
        FROM paired GROUP BY page
    )
    SELECT stage, page,
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
    **_TWO_SIDES,
)

# --- what lies in files: read for the chosen runs ------------------------------------------------


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

_ask(
    "launches",
    "launches that Nsight Compute profiled, in the order of the profile",
    """
    SELECT run_id, number, kernel, launch, stage, block, grid, device, compute_capability
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), number
    """,
    "kernel_launches",
    run_ids=REQUIRED,
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

_ask(
    "launch_rules",
    "what the rules of Nsight Compute say of a launch, and the speedup they estimate",
    """
    SELECT run_id, number, kernel, launch, section, rule, type, text, speedup_type, speedup_percent
    FROM read_parquet($files) WHERE list_contains($run_ids, run_id)
    ORDER BY list_position($run_ids, run_id), number, section, rule
    """,
    "kernel_rules",
    run_ids=REQUIRED,
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

_read("whole_pages", "the pages of runs, with their texts", "images")

_read("boxes", "boxes of runs, of one page or of all", "boxes", by="page, backend, number", page=None)

_read(
    "tokens",
    "new tokens of a page, or of all pages of runs",
    "tokens",
    "run_id, page, backend, token_ids",
    page=None,
)

_read("inputs", "what went into the model on each page of runs", "inputs")

_read(
    "steps",
    "new tokens of a page as texts, and the two likeliest of each step",
    "steps",
    "run_id, page, backend, token_texts, top_ids, top_logits",
    page=REQUIRED,
)

_ask(
    "top_two",
    "the two likeliest tokens of one step on each of some pages: runs, pages and steps in the same order",
    """
    SELECT given.run_id, given.page, given.backend, wanted.step,
           top_ids[2 * step + 1 : 2 * step + 2] AS top_ids,
           top_logits[2 * step + 1 : 2 * step + 2] AS top_logits
    FROM read_parquet($files) AS given
    JOIN (SELECT unnest($of_runs::VARCHAR[]) AS run_id, unnest($pages::VARCHAR[]) AS page,
                 unnest($steps::BIGINT[]) AS step) AS wanted USING (run_id, page)
    WHERE list_contains($run_ids, run_id) AND top_ids IS NOT NULL
    ORDER BY list_position($run_ids, run_id), given.page, given.backend, wanted.step
    """,
    "steps",
    run_ids=REQUIRED,
    of_runs=REQUIRED,
    pages=REQUIRED,
    steps=REQUIRED,
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
    FROM parity_totals JOIN runs USING (run_id) LEFT JOIN marks USING (run_id)
    WHERE {_RUN_FILTER} ORDER BY runs.created, runs.run_id
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
    JOIN runs USING (run_id) LEFT JOIN marks USING (run_id)
    WHERE ($run_ids::VARCHAR[] IS NULL OR list_contains($run_ids, run_id)) AND {_RUN_FILTER}
    ORDER BY runs.created, runs.run_id,
             list_position(['identical', 'within_tolerance', 'differs', 'not_comparable'], verdicts.verdict)
    """,
    **RUN_FILTERS,
    run_ids=None,
)

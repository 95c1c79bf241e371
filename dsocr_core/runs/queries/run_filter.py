"""Filter of the runs that a question is about."""

from __future__ import annotations

from typing import Any

from dsocr_core.reading.records import POLICY_FIELDS
from dsocr_core.runs.labels import PUBLISHED
from dsocr_core.runs.record import flattened
from dsocr_core.settings import InferSettings

RUN_FILTER = """
    ($trashed::BOOLEAN IS NULL OR runs.trashed = $trashed)
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
    AND ($tags::VARCHAR[] IS NULL OR list_has_any(runs.tags, $tags))
    AND ($since::TIMESTAMP IS NULL OR runs.created >= $since)
    AND ($until::TIMESTAMP IS NULL OR runs.created < $until)
    AND ($contended::BOOLEAN IS NULL OR runs.contended = $contended)
"""
"""Filters that several questions share, of `listed AS runs`: each NULL means "any"."""

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
               nullif(any_value(value) FILTER (name = 'draft'), '') AS draft,
               coalesce(
                   string_agg(replace(name, 'infer.', '') || ' ' || value, ', ' ORDER BY name)
                   FILTER (name IN ({_names}) AND (name, value) NOT IN ({_published})),
                   '{PUBLISHED}'
               ) AS policy
        FROM memory.main.facts WHERE section = 'settings' GROUP BY run_id
    ) AS work
"""

WORK = ("checkpoint", "prompt", "max_new_tokens", "no_repeat_ngram_size", "policy")


LISTED = f"""
    SELECT runs.*, runs.run_id IN (
               SELECT run_id FROM memory.main.facts
               WHERE section = 'environment' AND name = 'machine.contended' AND value = 'true'
           ) AS contended,
           coalesce(marks.tags, []) AS tags, marks.note, coalesce(marks.trashed, false) AS trashed,
           totals.pages, totals.failed, totals.new_tokens,
           parity_totals.pages AS compared, parity_totals.passed, parity_totals.identical,
           parity_totals.within_tolerance, parity_totals.differs, parity_totals.not_comparable,
           work.* EXCLUDE (run_id)
    FROM memory.main.runs AS runs
    LEFT JOIN memory.main.marks AS marks USING (run_id)
    LEFT JOIN (
        SELECT run_id, max(pages) AS pages, sum(failed) AS failed, sum(new_tokens) AS new_tokens
        FROM memory.main.page_totals GROUP BY run_id
    ) AS totals USING (run_id)
    LEFT JOIN memory.main.parity_totals USING (run_id)
    LEFT JOIN {_WORK} USING (run_id)
"""
"""Runs with what is filtered by and shown in lists, for `listed`: such joins take longer than asking."""

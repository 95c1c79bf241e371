"""Which runs a question is about."""

from __future__ import annotations

from typing import Any

RUN_FILTER = """
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
"""Filters that several questions share: each NULL means "any"."""

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

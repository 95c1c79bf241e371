"""The stages on every page: their names and colours."""

from __future__ import annotations

from dsocr_core.models.family import inside_prefill, stage_colours
from dsocr_core.runs.labels import VISION, short
from pages.widgets.shared.plots import NEUTRAL


def colour(stage: str) -> str:
    return "#3F8FC4" if stage == VISION else stage_colours().get(stage, NEUTRAL)


def stage_name(stage: str) -> str:
    """A stage's name with the one that it lies in."""
    return f"prefill › {stage}" if stage in (VISION, *inside_prefill()) else short(stage, 40)

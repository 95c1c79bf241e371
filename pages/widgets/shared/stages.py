"""The stages on every page: their names and colours, and their bars on one axis, vision inside prefill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dsocr_core.base.formatting import amount, duration, scale_of, significant
from dsocr_core.models.family import inside_prefill, stage_colours
from dsocr_core.models.stages import Stage
from dsocr_core.runs.labels import short
from dsocr_core.runs.timings import VISION
from pages.widgets.shared.bars import Bar, BarRow, legend_html, panel_html
from pages.widgets.shared.plots import NEUTRAL

Part = tuple[str, float, bool, str]
"""Part of a line: stage, amount, whether it lies inside prefill, and "median" or "mean" where it is one."""


def colour(stage: str) -> str:
    return "#3F8FC4" if stage == VISION else stage_colours().get(stage, NEUTRAL)


def stage_name(stage: str) -> str:
    """A stage's name with the one that it lies in."""
    return f"prefill › {stage}" if stage in (VISION, *inside_prefill()) else short(stage, 40)


# --- bars -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageLine:
    """One line of bars; the amounts are in the axis' unit and in the order of running."""

    label: str
    parts: Sequence[Part]
    second: str = ""


def spans(parts: Iterable[Part]) -> Iterator[tuple[float, Part]]:
    """Find where each part begins: top-level stages follow one another.

    Vision lies at the head of prefill, or stands for it where prefill was not measured.
    """
    clock = inner = 0.0
    for part in parts:
        stage, size, inside, _ = part
        if stage == Stage.PREFILL:
            inner = 0.0
        elif not inside:
            clock, inner = clock + inner, 0.0
        yield (clock + inner if inside else clock), part
        inner += size if inside else 0.0
        clock += 0.0 if inside else size


def legend(stages: Iterable[str]) -> str:
    return legend_html({short(stage_name(stage), 40): colour(stage) for stage in stages})


def panel(lines: Sequence[StageLine], unit: str) -> str:
    """Bars of the lines over one axis from zero, as HTML; behind the last bar of a line stands its sum."""
    drawn = [
        [
            Bar(start, size, colour(stage), _words(stage, size, kind, unit), inside, kind == "mean")
            for start, (stage, size, inside, kind) in spans(line.parts)
        ]
        for line in lines
    ]
    wholes = [max((bar.start + bar.size for bar in bars), default=0.0) for bars in drawn]
    scale, named = scale_of(max(wholes, default=0.0), unit)
    rows = [
        BarRow(line.label, bars, line.second, f"{significant(whole / scale)} {named}")
        for line, bars, whole in zip(lines, drawn, wholes, strict=True)
    ]
    return panel_html(rows, named, scale)


def _words(stage: str, size: float, kind: str, unit: str) -> str:
    return f"{stage_name(stage)}: {f'{kind} ' if kind else ''}{_said(size, unit)}"


def _said(size: float, unit: str) -> str:
    return duration(1000 * size) if unit == "s" else amount(size, unit)

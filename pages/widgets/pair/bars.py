"""Stages of both sides as bars from zero, in HTML that needs no library; vision lies inside prefill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from dsocr_core.base.formatting import duration
from dsocr_core.models.stages import Stage
from dsocr_core.runs.labels import in_order
from pages.widgets.shared.stages import colour, stage_name

Part = tuple[str, float, bool]
"""A stage, its milliseconds, and whether it lies inside prefill."""


def spans(parts: Iterable[Part]) -> Iterator[tuple[float, Part]]:
    """Start of each part in ms: top-level stages follow one another, vision is at the head of prefill."""
    clock = inner = 0.0
    for part in parts:
        stage, spent, inside = part
        if stage == Stage.PREFILL:
            inner = 0.0
        elif not inside:
            clock, inner = clock + inner, 0.0
        yield (clock + inner if inside else clock), part
        inner += spent if inside else 0.0
        clock += 0.0 if inside else spent


def bars_html(lines: Mapping[str, Sequence[Part]], words: str) -> str:
    """A line a side over one axis; `words` say to those who do not see them what they show."""
    drawn = {name: list(spans(parts)) for name, parts in lines.items()}
    longest = max((at + spent for found in drawn.values() for at, (_, spent, _) in found), default=0.0) or 1.0
    stages = in_order({part[0] for parts in lines.values() for part in parts})
    chips = "".join(
        f"<span class='dsocr-chip'><i style='background:{colour(stage)}'></i>{_name(stage)}</span>"
        for stage in stages
    )
    rows = "".join(_row(name, found, longest) for name, found in drawn.items())
    return (
        f"<div class='dsocr-bars' role='img' aria-label='{escape(words, quote=True)}'>"
        f"<div class='dsocr-bars-legend'>{chips}</div>{rows}</div>"
    )


def _name(stage: str) -> str:
    return escape(stage_name(stage), quote=True)


def _row(name: str, found: Sequence[tuple[float, Part]], longest: float) -> str:
    # Outer bars first, so that the inner ones lie on them.
    bars = "".join(
        f"<i class='{'inside' if inside else 'outer'}' title='{_name(stage)}: {duration(spent)}' style='"
        f"left:{at / longest:.3%};width:{spent / longest:.3%};background-color:{colour(stage)}'></i>"
        for at, (stage, spent, inside) in sorted(found, key=lambda item: item[1][2])
    )
    whole = max((at + spent for at, (_, spent, _) in found), default=0.0)
    return (
        f"<div class='dsocr-bars-row'><span>{escape(name)}</span><div class='dsocr-bars-track'>{bars}"
        f"<em style='left:{whole / longest:.3%}'>{duration(whole)}</em></div></div>"
    )

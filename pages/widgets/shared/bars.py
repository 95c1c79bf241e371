"""Bars from zero as plain HTML: the first thing that Timing and FLOPs show.

A chart of Plotly costs a browser two seconds before it draws its first bar; these need no library. Inner bars
(vision) are drawn narrower, on the bar that they lie in. Every text of others is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

import streamlit as st


@dataclass(frozen=True)
class Bar:
    """A stage from `start` to `start + size`, in the axis' unit."""

    start: float
    size: float
    colour: str
    words: str
    """Shown when the pointer rests on it."""
    inside: bool = False
    hatched: bool = False


@dataclass(frozen=True)
class BarRow:
    """One line of bars; `label` may have a second, smaller line, `end` stands behind the last bar."""

    label: str
    bars: Sequence[Bar]
    second: str = ""
    end: str = ""


def draw(html: str, words: str) -> None:
    """Show bars; `words` say to those who do not see them what they show."""
    st.html(f"<div class='dsocr-bars' role='img' aria-label='{escape(words, quote=True)}'>{html}</div>")


def legend_html(colours: Mapping[str, str]) -> str:
    """Names with their colours, in order."""
    chips = "".join(
        f"<span class='dsocr-chip'><i style='background:{colour}'></i>{escape(name)}</span>"
        for name, colour in colours.items()
    )
    return f"<div class='dsocr-bars-legend'>{chips}</div>"


def panel_html(rows: Sequence[BarRow], unit: str, scale: float = 1.0) -> str:
    """Rows over one axis from zero; `scale` is what a unit of the axis is in the bars' own."""
    longest = max((bar.start + bar.size for row in rows for bar in row.bars), default=0.0) or 1.0
    lines = "".join(_row_html(row, longest) for row in rows)
    ticks = "".join(
        f"<span style='left:{_percent(tick * scale, longest)}'>{tick:g}"
        f"{f' {escape(unit)}' if last else ''}</span>"
        for tick, last in _ticks(longest / scale)
    )
    return f"{lines}<div class='dsocr-bars-row'><span></span><div class='dsocr-bars-axis'>{ticks}</div></div>"


def _row_html(row: BarRow, longest: float) -> str:
    second = f"<small>{escape(row.second)}</small>" if row.second else ""
    # Outer bars first, so that the inner ones lie on them.
    bars = "".join(
        f"<i class='{_classes(bar)}' style='left:{_percent(bar.start, longest)};"
        f"width:{_percent(bar.size, longest)};background-color:{bar.colour}'"
        f" title='{escape(bar.words, quote=True)}'></i>"
        for bar in sorted(row.bars, key=lambda bar: bar.inside)
        if bar.size > 0
    )
    whole = max((bar.start + bar.size for bar in row.bars), default=0.0)
    end = f"<em style='left:{_percent(whole, longest)}'>{escape(row.end)}</em>" if row.end else ""
    return (
        f"<div class='dsocr-bars-row'><span>{escape(row.label)}{second}</span>"
        f"<div class='dsocr-bars-track'>{bars}{end}</div></div>"
    )


def _classes(bar: Bar) -> str:
    return " ".join(name for name, on in (("inside", bar.inside), ("hatched", bar.hatched)) if on) or "outer"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f}%"


def _ticks(longest: float) -> list[tuple[float, bool]]:
    """Four to eight round numbers from zero on; with each whether it is the last."""
    step = 10.0 ** floor(log10(longest))
    step = next(each for each in (step / 5, step / 2, step, 2 * step) if longest / each <= 7.5)
    numbers = [float(f"{number * step:.6g}") for number in range(int(longest / step) + 1)]
    return [(number, number == numbers[-1]) for number in numbers]

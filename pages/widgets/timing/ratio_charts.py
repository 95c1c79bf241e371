"""DataFrame -> HTML for run B against run A, pure: a row a stage, a dot a page. Times are milliseconds.

A chart of Plotly costs a browser a quarter of a second each time it is drawn; these need no library. Every
text of others is escaped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Any

import numpy as np
import pandas as pd

from dsocr_core.base.words import duration, plural, significant, speed_ratio
from dsocr_core.runs.labels import has_value, short
from dsocr_core.runs.statistics import SURE, outcome_words
from pages.widgets.shared.labels import mark, time_words
from pages.widgets.shared.stages import colour, stage_name
from pages.widgets.timing.charts import unit_of
from pages.widgets.timing.tables import interval_words

_MOST_DOTS = 1500


def ratios(found: pd.DataFrame, neutral: float) -> str:
    """B's time over A's with its interval, a row a stage, on a logarithmic axis; the band is grey.

    `found` is `tables.comparison`; `neutral` the half width of the band as a share.
    """
    shown = found[found["ratio"].notna() & (found["ratio"] > 0)].to_dict("records")
    band = (1 / (1 + neutral), 1 + neutral)
    ends = [*band, *(row[name] for row in shown for name in ("ratio", "low", "high") if has_value(row[name]))]
    positive = [end for end in ends if end > 0]
    axis = LogAxis(min(0.9, *positive) / 1.06, max(1.1, *positive) * 1.06)
    behind = (
        f"<i class='band' style='left:{axis.at(band[0])};right:{axis.at(band[1], from_end=True)}'></i>"
        f"<i class='line' style='left:{axis.at(1)}'></i>"
    )
    rows = [_ratio_row(row, axis, behind, neutral) for row in shown]
    ticks = "".join(
        f"<span style='left:{axis.at(tick)}'>{tick:g}</span>" for tick in _ratio_ticks(axis.low, axis.high)
    )
    head = "<b>← B is faster</b><b>B is slower →</b>"
    return (
        f"<div class='dsocr-bars-row'><span></span><div class='dsocr-ratio-head'>{head}</div></div>"
        f"{''.join(rows)}"
        f"<div class='dsocr-bars-row'><span></span><div class='dsocr-bars-axis'>{ticks}</div></div>"
        "<div class='dsocr-bars-row'><span></span><div class='dsocr-ratio-title'>"
        "time of B / time of A on the same pages</div></div>"
    )


def _ratio_row(row: Mapping[Hashable, Any], axis: LogAxis, behind: str, neutral: float) -> str:
    sure, shade = has_value(row["low"]), colour(row["stage"])
    words = (
        f"B / A {significant(row['ratio'])} ({interval_words(row['low'], row['high'])}), "
        f"{time_words(row['median_a'])} → {time_words(row['median_b'])}, "
        f"{row['runs_a']} and {row['runs_b']} runs, "
        f"{plural(int(row['pages']), 'page')}"
    )
    marks = ""
    if sure:
        left, right = axis.at(row["low"]), axis.at(row["high"], from_end=True)
        marks = f"<i class='interval' style='left:{left};right:{right};--shade:{shade}'></i>"
    marks += (
        f"<i class='dot{'' if sure else ' ring'}' style='left:{axis.at(row['ratio'])};--shade:{shade}'></i>"
    )
    known = row["verdict"] in SURE
    said = speed_ratio(row["ratio"], 1.0) if known else outcome_words(row["verdict"], neutral)
    return (
        f"<div class='dsocr-bars-row' title='{escape(words, quote=True)}'>"
        f"<span>{mark(stage_name(row['stage']), 40)}</span>"
        f"<div class='dsocr-bars-track ratio'>{behind}{marks}<em>{escape(said)}</em></div></div>"
    )


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis from `low` to `high`, both above 0."""

    low: float
    high: float

    def at(self, value: float, from_end: bool = False) -> str:
        """Say how far a value is from the axis' beginning, or its end, as CSS."""
        share = self.share(value)
        return f"{100 * (1 - share if from_end else share):.3f}%"

    def share(self, value: float) -> float:
        """0 at its beginning, 1 at its end; what lies outside is drawn there."""
        if value <= self.low:
            return 0.0
        return min(1.0, log10(value / self.low) / log10(self.high / self.low))


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios between two, some four to ten of them."""
    for steps in (
        [0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2], [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2],
        [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10],
    ):  # fmt: skip
        if steps[0] <= low and high <= steps[-1]:
            return [step for step in steps if low <= step <= high]
    return [10.0**power for power in range(floor(log10(low)), ceil(log10(high)) + 1)]


def page_scatter(pairs: pd.DataFrame, stage: str, neutral: float) -> str:
    """Each page's time in A and in B on equal logarithmic axes, as HTML: below the line B is faster.

    `pairs` is the query `pairs` of one stage; of many pages every so many-th is drawn.
    """
    shown = pairs[(pairs["a_ms"] > 0) & (pairs["b_ms"] > 0)]
    shown = shown.iloc[:: max(1, ceil(len(shown) / _MOST_DOTS))]
    both = [*shown["a_ms"], *shown["b_ms"]]
    scale, unit = unit_of(max(both, default=0.0))
    axis = LogAxis(min(both, default=1.0) / scale / 1.25, max(both, default=1.0) / scale * 1.25)
    dots = "".join(
        f"<i class='dot' style='left:{axis.at(a / scale)};bottom:{axis.at(b / scale)}'"
        f" title='{escape(short(page, 80), quote=True)}: {duration(a)} → {duration(b)}, "
        f"{speed_ratio(b, a)}'></i>"
        for page, a, b in zip(shown["page"], shown["a_ms"], shown["b_ms"], strict=True)
    )
    ticks = _time_ticks(axis.low, axis.high)
    across = "".join(f"<span style='left:{axis.at(tick)}'>{tick:g}</span>" for tick in ticks)
    up = "".join(f"<span style='bottom:{axis.at(tick)}'>{tick:g}</span>" for tick in ticks)
    wide = 100 * log10(1 + neutral) / log10(axis.high / axis.low)
    corners = [(0, 100 - wide), (100, -wide), (100, wide), (0, 100 + wide)]
    shape = ", ".join(f"{x}% {y:.3f}%" for x, y in corners)
    # No SVG: Streamlit takes it out of what it shows as HTML.
    ground = f"<i class='band' style='clip-path:polygon({shape})'></i><i class='equal'></i>"
    return (
        f"<div class='dsocr-scatter' style='--shade:{colour(stage)}'>"
        f"<div class='up'>{up}</div><div class='plane'>{ground}<b class='slower'>B is slower</b>"
        f"<b class='faster'>B is faster</b>{dots}</div><div class='across'>{across}</div>"
        f"<em class='of-a'>A ({unit})</em><em class='of-b'>B ({unit})</em></div>"
    )


def _time_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 of each decade; over more than three decades only 1; 1, 1.5, 2, 3 ... within one."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps: tuple[float, ...] = (1, 2, 5) if high / low > 8 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    if high / low > 1000:
        steps = (1,)
    if high / low < 1.8:
        width = 10 ** floor(log10(high - low))
        return [float(f"{tick:.6g}") for tick in np.arange(ceil(low / width), high / width) * width][:12]
    return [step * 10.0**power for power in decades for step in steps if low <= step * 10.0**power <= high]

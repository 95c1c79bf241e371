"""DataFrame -> HTML for run B against run A, pure: a row a stage. Times are milliseconds.

A chart of Plotly costs a browser a quarter of a second each time it is drawn; these need no library. Every
text of others is escaped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Any

import pandas as pd

from dsocr_core.base.formatting import plural, significant, speed_ratio
from dsocr_core.runs.labels import has_value
from dsocr_core.runs.statistics import SURE, outcome_words
from pages.widgets.shared.labels import mark, time_words
from pages.widgets.shared.stages import colour, stage_name
from pages.widgets.timing.tables import interval_words


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

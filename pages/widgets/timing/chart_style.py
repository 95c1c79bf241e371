"""Marks on the charts of times, and the words beside them; one unit for a chart."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from dsocr_core.models.family import stage_colours
from dsocr_core.words import plural
from pages.widgets.shared.labels import has_value, time_words
from pages.widgets.shared.plots import NEUTRAL
from pages.widgets.timing.tables import VISION, WHOLE

_COLOURS: Mapping[str, str] = {VISION: "#3F8FC4", WHOLE: NEUTRAL}
MOST_POINTS = 6000
"""A browser draws so many points without stumbling; of more pages every so many-th is drawn."""
MARGIN = {"l": 8, "r": 16, "t": 34, "b": 42}


def colour(stage: str) -> str:
    return stage_colours().get(stage) or _COLOURS.get(stage, NEUTRAL)


def unit_of(longest_ms: float) -> tuple[float, str]:
    """What to divide milliseconds by, and the unit's name."""
    return (1000.0, "s") if longest_ms >= 999.5 else (1.0, "ms")


def whiskers(part: pd.DataFrame, scale: float, shade: str) -> dict[str, object]:
    """Error bars from low to high; where there is no spread, none."""
    return {
        "type": "data", "symmetric": False, "color": shade, "thickness": 2, "width": 5,
        "array": ((part["high"] - part["value"]).clip(lower=0) / scale).fillna(0),
        "arrayminus": ((part["value"] - part["low"]).clip(lower=0) / scale).fillna(0),
    }  # fmt: skip


def spread_words(row: Mapping[str, object]) -> str:
    """Median and percentiles over a run's pages; its mean, where there are no times of pages."""
    if row["of_pages"]:
        words = f"median {time_words(row['value'])}"
        if has_value(row["low"]):
            words += f"<br>p5 {time_words(row['low'])}, p95 {time_words(row['high'])}"
        return f"{words}<br>n {plural(int(row['n']), 'page')}" if has_value(row["n"]) else words  # type: ignore[call-overload]
    words = f"mean {time_words(row['value'])}"
    return f"{words} ± {time_words(row['std'])}" if has_value(row["std"]) else words

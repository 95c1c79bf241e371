"""DataFrame -> figure for run B against run A, pure: a row a stage, a dot a page. Times are milliseconds."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pages.widgets.shared.formats import duration, plural, significant, speed_ratio
from pages.widgets.shared.labels import has_value, mark, time_words
from pages.widgets.timing.chart_style import MARGIN, MOST_POINTS, NEUTRAL, OUTLINE, colour, unit_of
from pages.widgets.timing.tables import interval_words, stage_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def ratios(found: pd.DataFrame, neutral: float) -> Figure:
    """B's time over A's with its interval, a row a stage, on a logarithmic axis; the neutral band is grey.

    `found` is `tables.comparison`; `neutral` the half width of the band as a share.
    """
    from plotly.graph_objects import Figure, Scatter

    shown = found[found["ratio"].notna() & (found["ratio"] > 0)].reset_index(drop=True)
    ends = [1 / (1 + neutral), 1 + neutral, *shown["ratio"], *shown["low"].dropna(), *shown["high"].dropna()]
    positive = [end for end in ends if end > 0]
    low, high = min(0.9, *positive) / 1.06, max(1.1, *positive) * 1.06
    figure = Figure()
    figure.add_vrect(
        x0=1 / (1 + neutral), x1=1 + neutral, fillcolor=NEUTRAL, opacity=0.22, line_width=0, layer="below"
    )
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1})
    for row in shown.to_dict("records"):
        shade = colour(row["stage"])
        at = int(shown.index[shown["stage"] == row["stage"]][0])
        sure = has_value(row["low"])
        figure.add_trace(
            Scatter(
                x=[row["ratio"]],
                y=[at],
                mode="markers",
                marker={"color": shade, "size": 11, "symbol": "circle" if sure else "circle-open",
                        "line": {"width": 1 if sure else 2, "color": "rgba(0,0,0,.55)" if sure else shade}},
                error_x={"type": "data", "symmetric": False, "color": shade, "thickness": 2.5, "width": 6,
                         "array": [row["high"] - row["ratio"] if sure else 0],
                         "arrayminus": [row["ratio"] - row["low"] if sure else 0]},
                customdata=[
                    f"B / A {significant(row['ratio'])} ({interval_words(row['low'], row['high'])})"
                    f"<br>{time_words(row['median_a'])} → {time_words(row['median_b'])}"
                    f"<br>n {plural(int(row['n']), 'page')}"
                ],
                hovertemplate="%{customdata}<extra></extra>",
                showlegend=False,
            )
        )  # fmt: skip
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=at, yanchor="middle", showarrow=False,
            text="no evidence" if row["verdict"] == "no evidence"
            else f"<b>{speed_ratio(row['median_b'], row['median_a'])}</b>",
            font={"size": 12}, align="right",
        )  # fmt: skip
    ticks = _ratio_ticks(low, high)
    # The words stand to the right of every interval.
    right = log10(high) + 0.42 * (log10(high) - log10(low))
    figure.update_layout(
        height=92 + 34 * max(len(shown), 1),
        margin={**MARGIN, "t": 30},
        xaxis={"type": "log", "range": [log10(low), right], "tickvals": ticks, "fixedrange": True,
               "ticktext": [f"{tick:g}" for tick in ticks],
               "title": {"text": "time of B / time of A, medians of the same pages"}},
        yaxis={"tickvals": list(shown.index), "fixedrange": True, "automargin": True, "zeroline": False,
               "ticktext": [mark(stage_name(stage), 40) for stage in shown["stage"]],
               "range": [len(shown) - 0.4, -0.6], "showgrid": False},
    )  # fmt: skip
    for x, anchor, words in ((log10(low), "left", "← B is faster"), (log10(high), "right", "B is slower →")):
        figure.add_annotation(
            x=x, xanchor=anchor, y=1, yref="paper", yanchor="bottom", text=words, showarrow=False,
            font={"size": 12, "color": NEUTRAL},
        )  # fmt: skip
    return figure


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios between two, some four to ten of them."""
    for steps in (
        [0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2], [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2],
        [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10],
    ):  # fmt: skip
        if steps[0] <= low and high <= steps[-1]:
            return [step for step in steps if low <= step <= high]
    return [10.0**power for power in range(floor(log10(low)), ceil(log10(high)) + 1)]


def page_scatter(pairs: pd.DataFrame, stage: str, neutral: float) -> Figure:
    """Each page's time in A and in B on equal logarithmic axes: below the line B is faster.

    `pairs` is the query `pairs` of one stage.
    """
    from plotly.graph_objects import Figure, Scatter

    shown = pairs[(pairs["a_ms"] > 0) & (pairs["b_ms"] > 0)]
    shown = shown.iloc[:: max(1, ceil(len(shown) / MOST_POINTS))]
    both = [*shown["a_ms"], *shown["b_ms"]]
    scale, unit = unit_of(max(both, default=0.0))
    low, high = min(both, default=1.0) / scale / 1.25, max(both, default=1.0) / scale * 1.25
    figure = Figure()
    band = 1 + neutral
    figure.add_trace(
        Scatter(
            x=[low, high, high, low], y=[low * band, high * band, high / band, low / band], fill="toself",
            mode="lines", line={"width": 0}, fillcolor="rgba(138,148,160,.28)", hoverinfo="skip",
            showlegend=False,
        )
    )  # fmt: skip
    figure.add_trace(
        Scatter(
            x=[low, high], y=[low, high], mode="lines", line={"color": NEUTRAL, "width": 1},
            hoverinfo="skip", showlegend=False,
        )
    )  # fmt: skip
    figure.add_trace(
        Scatter(
            x=shown["a_ms"] / scale,
            y=shown["b_ms"] / scale,
            mode="markers",
            marker={"color": colour(stage), "size": 9, "opacity": 0.85, "line": OUTLINE},
            text=[mark(page, 80) for page in shown["page"]],
            customdata=[
                f"{duration(a)} → {duration(b)}, {speed_ratio(b, a)}"
                for a, b in zip(shown["a_ms"], shown["b_ms"], strict=True)
            ],
            hovertemplate="%{text}<br>%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    ticks = _time_ticks(low, high)
    axis = {"type": "log", "range": [log10(low), log10(high)], "tickvals": ticks,
            "ticktext": [f"{tick:g}" for tick in ticks]}  # fmt: skip
    figure.update_layout(
        height=430,
        margin={**MARGIN, "t": 26},
        xaxis={**axis, "title": {"text": f"A ({unit})"}},
        yaxis={**axis, "title": {"text": f"B ({unit})"}},
    )
    for x, y, words in ((0.02, 0.97, "B is slower"), (0.98, 0.03, "B is faster")):
        figure.add_annotation(
            x=x, y=y, xref="paper", yref="paper", showarrow=False, text=words,
            font={"size": 12, "color": NEUTRAL},
        )  # fmt: skip
    return figure


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

"""Parts of all Plotly charts, and rooflines. Texts of others are escaped by whoever makes the frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

import pandas as pd

from dsocr_core.base.formatting import amount, scale_of, significant

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NEUTRAL = "#8A94A0"
"""Lines and marks that stand for no stage; visible on light and on dark."""
EDGE = "rgba(0,0,0,.5)"
MARGIN = {"l": 8, "r": 12, "t": 34, "b": 42}
LEGEND = {
    "orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemclick": False, "itemdoubleclick": False,
    "traceorder": "normal",
}  # fmt: skip


def figure(traces: Sequence[Mapping[str, Any]], height: int, **layout: Any) -> Figure:
    """A figure that Plotly does not check: that takes longer than all else, with each change anew."""
    from plotly.graph_objects import Figure

    whole = {"height": height, "margin": MARGIN, "legend": LEGEND} | layout
    return Figure(data=traces, layout=whole, _validate=False)


def below(y: float, **more: Any) -> dict[str, Any]:
    """A legend under its chart."""
    return LEGEND | {"y": y, "yanchor": "top"} | more


def points(
    name: str,
    x: Iterable[Any],
    y: Iterable[Any],
    marker: Mapping[str, Any],
    words: Iterable[str],
    **more: Any,
) -> dict[str, Any]:
    """Marks of one entry of the legend, each with its words for the pointer."""
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": list(x), "y": list(y), "marker": marker,
        "text": list(words), "hovertemplate": "%{text}<extra></extra>", "showlegend": bool(name), **more,
    }  # fmt: skip


def log_axis(values: Iterable[float], title: str) -> dict[str, Any]:
    """A logarithmic axis around positive values with ticks at 1, 2 and 5."""
    there = [value for value in values if value > 0] or [1.0]
    low, high = min(there) / 1.4, max(there) * 1.4
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) > 7:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    return {
        "type": "log", "title": {"text": title}, "range": [log10(low), log10(high)], "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
    }  # fmt: skip


Roof = tuple[str, float, str]
"""Name, FLOP/s, and how its line is drawn."""


def roofline(
    points_of: pd.DataFrame,
    roofs: Sequence[Roof],
    bandwidth: float,
    marks: Mapping[str, dict[str, Any]],
    label: str,
) -> Figure:
    """Work a byte against speed, log-log: the roofs of a device and what stands under them.

    `points_of` has group, intensity (FLOP/B), flops_per_s, words, and the size of each mark;
    `marks` has colour and symbol of every group of the legend in order. `bandwidth` in B/s.
    """
    peak = max(each for _, each, _ in roofs)
    ridge = peak / bandwidth
    shown = points_of[(points_of["intensity"] > 0) & (points_of["flops_per_s"] > 0)]
    left = min([min(each for _, each, _ in roofs) / bandwidth / 300, *(shown["intensity"] / 3)])
    right = max([ridge * 100, *(shown["intensity"] * 3)])
    low = min([left * bandwidth, *(shown["flops_per_s"] / 3)])
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "hoverinfo": "skip",
            "x": [left, each / bandwidth, right], "y": [left * bandwidth, each, each],
            "name": f"{name}, {amount(each, 'FLOP/s')}", "line": {"color": NEUTRAL, "width": 2, "dash": dash},
        }
        for name, each, dash in roofs
    ]  # fmt: skip
    for name, mark in marks.items():
        part = shown[shown["group"] == name]
        words = [
            f"{row.words}: {amount(row.flops_per_s, 'FLOP/s')}, {significant(row.intensity)} FLOP a byte"
            for row in part.itertuples()
        ]
        marker = {"color": mark["color"], "symbol": mark["symbol"]}
        if len(part):
            marker |= {"size": part["size"], "line": {"width": 1, "color": EDGE}}
        # An empty trace would lose its position in the legend.
        x, y = ([*part[of]] or [None] for of in ("intensity", "flops_per_s"))
        traces.append(points(name, x, y, marker, words))
    annotations = [
        {"x": log10(x), "y": log10(y), "text": text, "showarrow": False, "font": {"size": 12}, "yshift": 4,
         "xanchor": xanchor, "yanchor": "bottom"}
        for x, y, text, xanchor in (
            (right, peak, amount(peak, "FLOP/s"), "right"), (ridge, peak, amount(ridge, "FLOP/B"), "right"),
            (ridge, low, "memory bound ", "right"), (ridge, low, " compute bound", "left"),
        )
    ]  # fmt: skip
    speeds = [10.0**power for power in range(ceil(log10(low)), ceil(log10(peak * 3)))]
    scales = [(speed, scale_of(speed, "")) for speed in speeds]
    return figure(
        traces, 400, annotations=annotations, margin=MARGIN | {"t": 52},
        shapes=[{"type": "line", "x0": ridge, "x1": ridge, "y0": low, "y1": peak,
                 "line": {"color": NEUTRAL, "width": 1, "dash": "dot"}}],
        xaxis={"type": "log", "separatethousands": True, "exponentformat": "none", "dtick": 1,
               "title": {"text": label}, "range": [log10(left), log10(right)]},
        yaxis={"type": "log", "title": {"text": "speed (FLOP/s)"},
               "range": [log10(low), log10(peak * 3)], "tickvals": speeds,
               "ticktext": [f"{speed / size:g} {prefix}" for speed, (size, prefix) in scales]},
    )  # fmt: skip

"""DataFrame -> figure, pure. Stage colours are the same in every chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from dsocr_core.models.family import all_stages, stage_colours
from dsocr_core.words import duration
from pages.widgets.shared.labels import mark

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def stage_bars(spans: pd.DataFrame, names: Mapping[str, str]) -> Figure:
    """Stages of each side on one time axis from zero; vision stages are drawn inside prefill.

    `spans` is `result_tables.timing_spans`; `names` are those of its sides, A's above B's.
    """
    from plotly.graph_objects import Bar, Figure

    longest = float((spans["start_ms"] + spans["ms"]).max()) if len(spans) else 1.0
    unit, scale = ("s", 1000.0) if longest >= 1000 else ("ms", 1.0)
    figure = Figure()
    # Outer bars first, so that the vision bars lie on prefill's.
    drawn_first = [stage for stage in all_stages() if not spans["inside"][spans["stage"] == stage].any()]
    for order, stage in enumerate(
        [*drawn_first, *(stage for stage in all_stages() if stage not in drawn_first)]
    ):
        part = spans[spans["stage"] == stage]
        inside = bool(part["inside"].any())
        figure.add_trace(
            Bar(
                y=[_row(side, names) for side in part["side"]],
                x=part["ms"] / scale,
                base=part["start_ms"] / scale,
                width=0.34 if inside else 0.72,
                orientation="h",
                name=stage.value,
                legendrank=all_stages().index(stage),
                zorder=order,
                marker={"color": stage_colours()[stage], "line": {"width": 0.5, "color": "rgba(0,0,0,.35)"}},
                customdata=[duration(value) for value in part["ms"]],
                hovertemplate=f"{stage.value} %{{customdata}}<extra>%{{y}}</extra>",
                showlegend=True,
            )
        )
    rows = [_row(side, names) for side in sorted(names, reverse=True) if side in set(spans["side"])]
    figure.update_layout(
        barmode="overlay",
        height=110 + 70 * max(len(rows), 1),
        margin={"l": 60, "r": 12, "t": 34, "b": 40},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemclick": False,
                "itemdoubleclick": False, "traceorder": "normal"},
        xaxis={"title": {"text": f"time ({unit})"}, "rangemode": "tozero", "zeroline": True},
        yaxis={"categoryorder": "array", "categoryarray": rows, "fixedrange": True, "automargin": True},
    )  # fmt: skip
    return figure


def _row(side: str, names: Mapping[str, str]) -> str:
    return mark(names[side], 40)

"""DataFrame -> figure for sweeps and requirements, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dsocr_core.stages import Stage
from pages.widgets.flops.charts import COSTLY, NEUTRAL, legend_name
from pages.widgets.shared.amounts import amount, scale_of
from pages.widgets.shared.charts import STAGE_COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ENGINE_COLOURS = {"eager": "#4C6EF5", "flash": "#B07AA1"}
_DASHES = {"eager": "solid", "flash": "dash"}
_MARGIN = {"l": 8, "r": 12, "t": 34, "b": 42}
_LEGEND = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
_DOT = {"color": "#C0362C", "size": 9, "symbol": "circle", "line": {"width": 1, "color": "rgba(0,0,0,.6)"}}


def totals(frame: pd.DataFrame, axis: str, label: str, unit: str, log: bool, dots: pd.DataFrame) -> Figure:
    """A page's total, a line an engine; dots over the line of vision and prefill where some were counted."""
    from plotly.graph_objects import Figure, Scatter

    scale, name = scale_of(float(frame["total"].max()), unit)
    figure = Figure()
    for engine, part in frame.groupby("engine"):
        figure.add_trace(
            Scatter(
                x=part[axis], y=part["total"] / scale, mode="lines", name=str(engine),
                line={"color": ENGINE_COLOURS[str(engine)], "width": 2.5, "dash": _DASHES[str(engine)]},
                customdata=[amount(value, unit) for value in part["total"]],
                hovertemplate=f"%{{x:,}}: %{{customdata}}<extra>{engine}</extra>",
            )
        )  # fmt: skip
    if len(dots) and "vision_and_prefill" in frame:
        part = frame[frame["engine"] == frame["engine"].iloc[0]]
        figure.add_trace(
            Scatter(
                x=part[axis], y=part["vision_and_prefill"] / scale, mode="lines", name="vision and prefill",
                line={"color": STAGE_COLOURS[Stage.PREFILL], "width": 1.5, "dash": "dot"},
                customdata=[amount(value, unit) for value in part["vision_and_prefill"]],
                hovertemplate="%{x:,}: %{customdata}<extra>vision and prefill</extra>",
            )
        )  # fmt: skip
    _add_dots(figure, dots, scale, unit)
    _lay_out(figure, label, name, log)
    return figure


def stacked(frame: pd.DataFrame, axis: str, label: str, unit: str, log: bool, dots: pd.DataFrame) -> Figure:
    """The stages one on the other, a panel an engine. On a log scale each stage is a line of its own."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    engines = list(dict.fromkeys(frame["engine"]))
    scale, name = scale_of(float(frame["total"].max()), unit)
    figure: Figure = make_subplots(rows=1, cols=len(engines), shared_yaxes=True, subplot_titles=engines)
    for column, engine in enumerate(engines, start=1):
        part = frame[frame["engine"] == engine]
        for stage in COSTLY:
            amounts = part[stage.value]
            if not amounts.any():
                continue
            figure.add_trace(
                Scatter(
                    x=part[axis], y=amounts / scale, mode="lines", name=legend_name(stage),
                    legendgroup=stage.value, showlegend=column == 1, stackgroup=None if log else f"s{column}",
                    line={"color": STAGE_COLOURS[stage], "width": 2 if log else 0.8},
                    customdata=[amount(value, unit) for value in amounts],
                    hovertemplate=f"{legend_name(stage)} %{{customdata}}<extra>%{{x:,}}</extra>",
                ),
                row=1, col=column,
            )  # fmt: skip
    _lay_out(figure, label, name, log)
    figure.update_layout(margin={**_MARGIN, "t": 58}, legend={**_LEGEND, "y": 1.07})
    return figure


def required(frame: pd.DataFrame, rate: str, unit: str, chosen: int, reached: pd.DataFrame) -> Figure:
    """The rate that a target takes over image tokens; devices' peaks as lines, recorded runs as diamonds.

    `frame` has image_tokens and the rate; `reached` name, image_tokens and the rate.
    """
    from plotly.graph_objects import Figure, Scatter

    scale, name = scale_of(float(frame[rate].max()), unit)
    figure = Figure()
    figure.add_trace(
        Scatter(
            x=frame["image_tokens"], y=frame[rate] / scale, mode="lines", name="needed",
            line={"color": ENGINE_COLOURS["eager"], "width": 2.5},
            customdata=[amount(value, unit) for value in frame[rate]],
            hovertemplate="%{x:,} image tokens: %{customdata}<extra></extra>",
        )
    )  # fmt: skip
    if len(reached):
        figure.add_trace(
            Scatter(
                x=reached["image_tokens"], y=reached[rate] / scale, mode="markers", name="reached by runs",
                marker={**_DOT, "symbol": "diamond"}, text=reached["run"],
                customdata=[amount(value, unit) for value in reached[rate]],
                hovertemplate="%{text}: %{customdata}<extra></extra>",
            )
        )  # fmt: skip
    figure.add_vline(x=chosen, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=chosen, y=1, yref="paper", text=f"this page: {chosen:,}", showarrow=False, yanchor="top",
        xanchor="left", xshift=4, font={"size": 12, "color": NEUTRAL},
    )  # fmt: skip
    _lay_out(figure, "positions of the image in the prompt", name, log=False)
    figure.update_layout(height=320)
    return figure


def _add_dots(figure: Figure, dots: pd.DataFrame, scale: float, unit: str) -> None:
    from plotly.graph_objects import Scatter

    if dots.empty:
        return
    figure.add_trace(
        Scatter(
            x=dots["x"], y=dots["flops"] / scale, mode="markers", name="counted by torch", marker=_DOT,
            text=dots["grid"], customdata=[amount(value, unit) for value in dots["flops"]],
            hovertemplate="%{text}: %{customdata}<extra>counted by torch</extra>",
        )
    )  # fmt: skip


def _lay_out(figure: Figure, label: str, name: str, log: bool) -> None:
    kind: dict[str, Any] = {"type": "log" if log else "linear", "fixedrange": True}
    figure.update_layout(height=430, margin=_MARGIN, legend=_LEGEND, hovermode="closest")
    figure.update_xaxes(title={"text": label}, **kind)
    figure.update_yaxes(rangemode="normal" if log else "tozero", **kind)
    figure.update_layout(yaxis={"title": {"text": name}})


CAUSE_PALETTE = ("#7B61A8", "#4E9A9A", "#D55E00", "#A8A032", "#8C6D4F", "#4C6EF5", "#CC79A7", "#C0362C")


def gaps(frame: pd.DataFrame, causes: list[str]) -> Figure:
    """Each point's gap, cause on cause, in percent of the exact FLOPs; the line is the whole gap."""
    from plotly.graph_objects import Bar, Figure, Scatter

    figure = Figure()
    x = [f"{tokens:,}" for tokens in frame["image_tokens"]]
    for cause, colour in zip(causes, CAUSE_PALETTE, strict=False):
        if not frame[cause].any():
            continue
        figure.add_trace(
            Bar(
                x=x, y=100 * frame[cause] / frame["exact"], name=cause, marker={"color": colour},
                customdata=[amount(float(value), "FLOP") for value in frame[cause]],
                hovertemplate=f"{cause} %{{customdata}}<extra>%{{x}} image tokens</extra>",
            )
        )  # fmt: skip
    figure.add_trace(
        Scatter(
            x=x, y=100 * frame["gap"] / frame["exact"], name="gap", mode="lines+markers",
            line={"color": NEUTRAL, "width": 1.5}, marker={"size": 4},
            customdata=[amount(float(value), "FLOP") for value in frame["gap"]],
            hovertemplate="gap %{customdata}<extra>%{x} image tokens</extra>",
        )
    )  # fmt: skip
    _lay_out(figure, "image tokens", "%", log=False)
    figure.update_layout(barmode="relative", height=440, margin={**_MARGIN, "t": 76})
    figure.update_xaxes(type="category", nticks=16)
    return figure

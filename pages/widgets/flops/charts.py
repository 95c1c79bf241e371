"""DataFrame -> figure for FLOPs and bounds, pure. Vision is drawn inside prefill; colours are the stages'."""

from __future__ import annotations

from math import ceil, log10
from typing import TYPE_CHECKING

import pandas as pd

from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.shared.amounts import amount, scale_of, signed
from pages.widgets.shared.charts import STAGE_COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COSTLY: tuple[Stage, ...] = (*INSIDE_PREFILL, Stage.PREFILL, Stage.DECODE)
"""The stages that an accelerator runs, in the legend's order."""
CAUSE_COLOURS: dict[str, str] = {
    "FlashAttention core": "#7B61A8",
    "lm_head positions": "#B07AA1",
    "causal convention": "#4E9A9A",
    "window padding": "#A8A032",
    "nesting": "#8C6D4F",
    "unexplained": "#C0362C",
}
NEUTRAL = "#8A94A0"
"""Lines and marks that stand for no stage; visible on light and on dark."""
_MARGIN = {"l": 8, "r": 12, "t": 34, "b": 42}
_LEGEND = {
    "orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemclick": False, "itemdoubleclick": False,
    "traceorder": "normal",
}  # fmt: skip


def legend_name(stage: Stage) -> str:
    return f"prefill › {stage.value}" if stage in INSIDE_PREFILL else stage.value


# --- bars -----------------------------------------------------------------------------------------


def cost_bars(spans: pd.DataFrame, units: dict[str, str]) -> Figure:
    """Stages as bars along one axis from zero; a panel an amount, a bar a row of the panel.

    `spans` is `tables.spans`: panel, row, stage, start, amount, inside. `units` gives each panel, in
    the order of drawing, its unit (FLOP, B, s).
    """
    from plotly.graph_objects import Bar
    from plotly.subplots import make_subplots

    rows = {panel: list(dict.fromkeys(spans["row"][spans["panel"] == panel])) for panel in units}
    counts = [max(len(names), 1) for names in rows.values()]
    height = 50 + sum(34 + 42 * count for count in counts)
    figure: Figure = make_subplots(
        rows=len(units), cols=1, row_heights=counts, vertical_spacing=34 / height if len(units) > 1 else 0
    )
    for number, (panel, unit) in enumerate(units.items(), start=1):
        here = spans[spans["panel"] == panel]
        longest = float((here["start"] + here["amount"]).max()) if len(here) else 0.0
        scale, name = scale_of(longest, unit)
        # prefill's bar first, so that the vision bars lie on it.
        for order, stage in enumerate((Stage.PREFILL, Stage.DECODE, *INSIDE_PREFILL)):
            part = here[here["stage"] == stage]
            figure.add_trace(
                Bar(
                    y=part["row"],
                    x=part["amount"] / scale,
                    base=part["start"] / scale,
                    width=0.38 if stage in INSIDE_PREFILL else 0.78,
                    orientation="h",
                    name=legend_name(stage),
                    legendrank=COSTLY.index(stage),
                    legendgroup=stage.value,
                    zorder=order,
                    marker={
                        "color": STAGE_COLOURS[stage],
                        "line": {"width": 0.5, "color": "rgba(0,0,0,.35)"},
                    },
                    customdata=[amount(value, unit) for value in part["amount"]],
                    hovertemplate=f"{_hover_name(stage)} %{{customdata}}<extra>%{{y}}</extra>",
                    showlegend=number == 1,
                ),
                row=number,
                col=1,
            )
        for row in rows[panel]:
            ends = here[here["row"] == row]
            end = float((ends["start"] + ends["amount"]).max())
            figure.add_annotation(
                x=end / scale, y=row, text=f" {amount(end, unit)}", showarrow=False, xanchor="left",
                font={"size": 12}, row=number, col=1,
            )  # fmt: skip
        figure.update_xaxes(
            ticksuffix=f" {name}", showticksuffix="last", range=[0, (longest / scale or 1.0) * 1.16],
            zeroline=True, fixedrange=True, row=number, col=1,
        )  # fmt: skip
        figure.update_yaxes(
            categoryorder="array", categoryarray=rows[panel][::-1], fixedrange=True, row=number, col=1
        )
    figure.update_layout(barmode="overlay", height=height, margin={**_MARGIN, "b": 26}, legend=_LEGEND)
    return figure


def _hover_name(stage: Stage) -> str:
    return "prefill with its vision" if stage is Stage.PREFILL else legend_name(stage)


def gap_bars(causes: pd.DataFrame) -> Figure:
    """What each stage's gap is made of, in percent of what was measured; bars grow from zero both ways.

    `causes` is `gaps.gap_causes`: stage, cause, flops, percent.
    """
    from plotly.graph_objects import Bar, Figure

    figure = Figure()
    stages = [stage.value for stage in COSTLY]
    for cause, colour in CAUSE_COLOURS.items():
        part = causes[causes["cause"] == cause]
        figure.add_trace(
            Bar(
                y=part["stage"],
                x=part["percent"],
                orientation="h",
                name=cause,
                width=0.6,
                marker={"color": colour},
                customdata=[signed(value, "FLOP") for value in part["flops"]],
                hovertemplate=f"{cause} %{{customdata}} (%{{x:.3g}} %)<extra>%{{y}}</extra>",
                showlegend=True,
            )
        )
    figure.update_layout(
        barmode="relative",
        height=90 + 30 * len(stages),
        margin=_MARGIN,
        legend=_LEGEND,
        xaxis={
            "title": {"text": "analytic − measured (% of measured)"}, "zeroline": True,
            "zerolinecolor": NEUTRAL, "fixedrange": True,
        },
        yaxis={"categoryorder": "array", "categoryarray": stages[::-1], "range": [-0.5, len(stages) - 0.5],
               "fixedrange": True},
    )  # fmt: skip
    return figure


def estimate_waterfall(steps: pd.DataFrame) -> Figure:
    """From the old estimate to the truth: wholes stand on zero, corrections hang where they apply.

    `steps` is `old_estimate.estimate_steps`.
    """
    from plotly.graph_objects import Bar, Figure

    tops = pd.concat([steps["start"], steps["start"] + steps["flops"]], axis=1).max(axis=1)
    scale, name = scale_of(float(tops.max()), "FLOP")
    labels = list(dict.fromkeys(steps["label"]))
    figure = Figure()
    for stage in dict.fromkeys(steps["stage"]):
        part = steps[steps["stage"] == stage]
        figure.add_trace(
            Bar(
                x=part["label"],
                y=part["flops"] / scale,
                base=part["start"] / scale,
                width=0.62,
                name=legend_name(Stage(stage)),
                marker={"color": STAGE_COLOURS[stage], "line": {"width": 0.5, "color": "rgba(0,0,0,.35)"}},
                customdata=[
                    amount(value, "FLOP") if whole else signed(value, "FLOP")
                    for value, whole in zip(part["flops"], part["whole"], strict=True)
                ],
                hovertemplate=f"{stage} %{{customdata}}<extra>%{{x}}</extra>",
                showlegend=True,
            )
        )
    for label in labels:
        part = steps[steps["label"] == label]
        change = float(part["flops"].sum())
        figure.add_annotation(
            x=label, y=float(tops[part.index].max()) / scale, showarrow=False, yanchor="bottom",
            text=amount(change, "FLOP") if part["whole"].iloc[0] else signed(change, "FLOP"),
            font={"size": 12},
        )  # fmt: skip
    figure.update_layout(
        barmode="overlay",
        height=400,
        margin=_MARGIN,
        legend=_LEGEND,
        xaxis={"categoryorder": "array", "categoryarray": labels, "fixedrange": True, "tickangle": 0,
               "tickvals": labels, "ticktext": [_two_lines(label) for label in labels]},
        yaxis={"title": {"text": f"vision ({name})"}, "range": [0, float(tops.max()) / scale * 1.1],
               "fixedrange": True},
    )  # fmt: skip
    return figure


def _two_lines(label: str) -> str:
    """`label`, broken at the space nearest its middle when it is long."""
    spaces = [index for index, letter in enumerate(label) if letter == " "]
    if len(label) < 13 or not spaces:
        return label
    middle = min(spaces, key=lambda index: abs(index - len(label) / 2))
    return f"{label[:middle]}<br>{label[middle + 1 :]}"


# --- bounds ---------------------------------------------------------------------------------------


def roofline(points: pd.DataFrame, peak_flops: float, bandwidth: float) -> Figure:
    """Work per byte against speed, log-log: the roof, where each stage stands under it, what was measured.

    `points` is `bounds.roofline_points`: stage, kind ("bound", "measured", or "counted" by a profiler),
    intensity (FLOP/B), flops_per_s. `peak_flops` in FLOP/s, `bandwidth` in B/s.
    """
    from plotly.graph_objects import Figure, Scatter

    ridge = peak_flops / bandwidth
    shown = points[(points["intensity"] > 0) & (points["flops_per_s"] > 0)]
    left = min([ridge / 300, *(shown["intensity"] / 3)])
    right = max([ridge * 30, *(shown["intensity"] * 3)])
    low = min([left * bandwidth, *(shown["flops_per_s"] / 3)])
    figure = Figure()
    figure.add_trace(
        Scatter(
            x=[left, ridge, right],
            y=[left * bandwidth, peak_flops, peak_flops],
            mode="lines",
            line={"color": NEUTRAL, "width": 2},
            name="roof",
            hoverinfo="skip",
            showlegend=False,
        )
    )
    kinds = (("bound", "circle-open", 13), ("measured", "diamond", 12), ("counted", "triangle-up", 13))
    for kind, symbol, size in kinds:
        for stage in COSTLY:
            part = shown[(shown["stage"] == stage) & (shown["kind"] == kind)]
            figure.add_trace(
                Scatter(
                    # An empty trace would lose its position in the legend.
                    x=part["intensity"] if len(part) else [None],
                    y=part["flops_per_s"] if len(part) else [None],
                    mode="markers",
                    name=legend_name(stage),
                    legendgroup=stage.value,
                    showlegend=kind == "bound",
                    marker={
                        "color": STAGE_COLOURS[stage],
                        "symbol": symbol,
                        "size": size - 3 if stage in INSIDE_PREFILL else size,
                        "line": {"width": 3 if kind == "bound" else 0.8,
                                 "color": STAGE_COLOURS[stage] if kind == "bound" else "rgba(0,0,0,.5)"},
                    },
                    customdata=[
                        [amount(speed, "FLOP/s"), amount(work, "FLOP/B")]
                        for speed, work in zip(part["flops_per_s"], part["intensity"], strict=True)
                    ],
                    hovertemplate=f"{kind}: %{{customdata[0]}} at %{{customdata[1]}}"
                    f"<extra>{legend_name(stage)}</extra>",
                )
            )  # fmt: skip
    for x, y, text, xanchor in (
        (right, peak_flops, amount(peak_flops, "FLOP/s"), "right"),
        (ridge, peak_flops, amount(ridge, "FLOP/B"), "center"),
        (ridge, low, "memory bound ", "right"),
        (ridge, low, " compute bound", "left"),
    ):
        figure.add_annotation(
            x=log10(x), y=log10(y), yshift=4, text=text, showarrow=False, xanchor=xanchor, yanchor="bottom",
            font={"size": 12, "color": NEUTRAL},
        )  # fmt: skip
    figure.add_shape(
        type="line",
        x0=ridge,
        x1=ridge,
        y0=low,
        y1=peak_flops,
        line={"color": NEUTRAL, "width": 1, "dash": "dot"},
    )
    speeds = [10.0**power for power in range(ceil(log10(low)), ceil(log10(peak_flops * 3)))]
    scales = [(speed, scale_of(speed, "")) for speed in speeds]
    figure.update_layout(
        height=470,
        margin=_MARGIN,
        legend=_LEGEND,
        xaxis={"type": "log", "separatethousands": True, "title": {"text": "arithmetic intensity (FLOP/B)"},
               "range": [log10(left), log10(right)], "exponentformat": "none", "dtick": 1},
        yaxis={"type": "log", "title": {"text": "speed (FLOP/s)"},
               "range": [log10(low), log10(peak_flops * 3)], "tickvals": speeds,
               "ticktext": [f"{speed / size:g} {prefix}" for speed, (size, prefix) in scales]},
    )  # fmt: skip
    return figure


def crossing(
    sweep: pd.DataFrame, stage: Stage, label: str, at: tuple[float, float] | None, chosen: int
) -> Figure:
    """Least time by size, log-log: what computing takes, what moving bytes takes, and where they cross.

    `sweep` is `bounds.decode_sweep` or `prefill_sweep`; `label` says what its sizes are; `at` is
    `bounds.cross_at`; `chosen` is the size of the work shown.
    """
    from plotly.graph_objects import Figure, Scatter

    scale, name = scale_of(float(sweep[["compute_s", "memory_s"]].to_numpy().max()), "s")
    figure = Figure()
    for column, words, dash in (("compute_s", "computing", "solid"), ("memory_s", "moving bytes", "dash")):
        figure.add_trace(
            Scatter(
                x=sweep["size"],
                y=sweep[column] / scale,
                mode="lines",
                name=words,
                line={"color": STAGE_COLOURS[stage], "width": 2.5, "dash": dash},
                customdata=[amount(value, "s") for value in sweep[column]],
                hovertemplate=f"{words} %{{customdata}}<extra>%{{x:,}}</extra>",
            )
        )
    if at is not None:
        size, seconds = at
        figure.add_trace(
            Scatter(
                x=[size], y=[seconds / scale], mode="markers+text", text=[f"  {size:,.0f}"],
                textposition="bottom right", showlegend=False, hoverinfo="skip",
                marker={"color": NEUTRAL, "size": 10, "line": {"width": 1, "color": "rgba(0,0,0,.5)"}},
            )
        )  # fmt: skip
    if sweep["size"].min() <= chosen <= sweep["size"].max():
        figure.add_vline(x=chosen, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=log10(chosen), y=1, yref="paper", text=f"this work: {chosen:,}", showarrow=False,
            yanchor="top", xanchor="left", xshift=4, font={"size": 12, "color": NEUTRAL},
        )  # fmt: skip
    figure.update_layout(
        height=400,
        margin=_MARGIN,
        legend=_LEGEND,
        xaxis={"type": "log", "title": {"text": label}, "tickvals": list(sweep["size"]), "fixedrange": True},
        yaxis={"type": "log", "title": {"text": f"least time ({name})"}, "dtick": 1, "fixedrange": True},
    )
    return figure

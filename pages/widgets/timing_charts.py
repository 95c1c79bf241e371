"""DataFrame -> figure for times over runs, pure. Vision is drawn inside prefill; colours are the stages'."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, log10
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dsocr_core.stages import Stage
from pages.widgets.charts import STAGE_COLOURS
from pages.widgets.flop_formats import amount
from pages.widgets.formats import duration, plural, significant, speed_ratio
from pages.widgets.timing_formats import known, mark, moment
from pages.widgets.timing_tables import VISION, WHOLE, in_order, interval_words, stage_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NEUTRAL = "#8A94A0"
"""Lines and marks that stand for no stage; seen on light and on dark."""
COLOURS: Mapping[str, str] = {**STAGE_COLOURS, VISION: "#3F8FC4", WHOLE: NEUTRAL}
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
MOST_POINTS = 6000
"""A browser draws so many points without stumbling; of more pages every so many-th is drawn."""
_OUTLINE = {"width": 0.5, "color": "rgba(0,0,0,.35)"}
_LEGEND = {
    "orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemdoubleclick": False,
    "traceorder": "normal", "font": {"size": 11},
}  # fmt: skip
_MARGIN = {"l": 8, "r": 16, "t": 34, "b": 42}
_PANELS_IN_A_ROW = 3

Row = tuple[str, str]
"""Run and road."""
Names = Mapping[str, tuple[str, str]]
"""Two lines a run, `timing_formats.chart_names`."""


def colour(stage: str) -> str:
    return COLOURS.get(stage, NEUTRAL)


def unit_of(longest_ms: float) -> tuple[float, str]:
    """What to divide milliseconds by, and the unit's name."""
    return (1000.0, "s") if longest_ms >= 999.5 else (1.0, "ms")


def _row_words(row: Row, names: Names, wide: bool = True) -> str:
    first, second = names.get(row[0], (row[0], ""))
    words = f"{mark(first, 40)} <b>{mark(row[1], 12)}</b>"
    return f"{words}<br><span style='font-size:11px'>{mark(second, 36)}</span>" if wide else words


def _rows_of(frame: pd.DataFrame) -> list[Row]:
    return list(dict.fromkeys(zip(frame["run_id"], frame["road"], strict=True)))


# --- stages over runs -----------------------------------------------------------------------------


def stage_bars(spans: pd.DataFrame, names: Names) -> Figure:
    """Stages of each run on one time axis from zero. `spans` is `timing_tables.stage_spans`."""
    from plotly.graph_objects import Bar, Figure

    rows = _rows_of(spans)
    at = {row: place for place, row in enumerate(rows)}
    scale, unit = unit_of(float((spans["start_ms"] + spans["ms"]).max()) if len(spans) else 0.0)
    stages = in_order({*(stage.value for stage in Stage), *spans["stage"]})
    figure = Figure()
    inside_of = {stage: bool(spans["inside"][spans["stage"] == stage].any()) for stage in stages}
    # Outer bars first, so that the vision bars lie on prefill's.
    for order, stage in enumerate(sorted(stages, key=lambda stage: inside_of[stage])):
        part = spans[spans["stage"] == stage]
        figure.add_trace(
            Bar(
                y=[at[row] for row in zip(part["run_id"], part["road"], strict=True)],
                x=part["ms"] / scale,
                base=part["start_ms"] / scale,
                width=0.34 if inside_of[stage] else 0.72,
                orientation="h",
                name=mark(stage, 24),
                legendrank=stages.index(stage),
                zorder=order,
                marker={
                    "color": colour(stage), "line": _OUTLINE,
                    "pattern": {"shape": ["" if exact else "/" for exact in part["of_pages"]],
                                "fillmode": "overlay", "size": 6, "solidity": 0.2},
                },
                customdata=[
                    f"{'median' if exact else 'mean'} {duration(value)}"
                    for value, exact in zip(part["ms"], part["of_pages"], strict=True)
                ],
                hovertemplate=f"{_plain(stage)} %{{customdata}}<extra></extra>",
                showlegend=True,
            )
        )  # fmt: skip
    figure.update_layout(
        barmode="overlay",
        height=130 + 46 * max(len(rows), 1),
        margin=_MARGIN,
        legend=_LEGEND | {"itemclick": False},
        xaxis={"title": {"text": f"time ({unit})"}, "rangemode": "tozero", "fixedrange": True},
        yaxis=_row_axis(rows, names),
    )
    return figure


def _plain(stage: str) -> str:
    """A stage's name inside a hover template."""
    return mark(stage, 40).replace("%{", "% {")


def _row_axis(rows: list[Row], names: Names) -> dict[str, object]:
    return {
        "tickvals": list(range(len(rows))), "ticktext": [_row_words(row, names) for row in rows],
        "range": [len(rows) - 0.5, -0.5], "fixedrange": True, "automargin": True, "showgrid": False,
        "zeroline": False,
    }  # fmt: skip


def stage_spread(rows: pd.DataFrame, names: Names, pages: pd.DataFrame | None = None) -> Figure:
    """A panel a stage, each from zero: median and p5 to p95 of each run; rings are means with one standard
    deviation. `rows` is `timing_tables.stage_rows`; the query `page_timings` adds every page's time.
    """
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    stages, runs = in_order(rows["stage"]), _rows_of(rows)
    at = {row: place for place, row in enumerate(runs)}
    columns = min(_PANELS_IN_A_ROW, max(len(stages), 1))
    lines = ceil(max(len(stages), 1) / columns)
    panel = 24 + 26 * max(len(runs), 2)
    height = lines * (panel + 72) + 20
    figure: Figure = make_subplots(
        rows=lines, cols=columns, shared_yaxes=True, horizontal_spacing=0.03,
        vertical_spacing=72 / height if lines > 1 else 0,
    )  # fmt: skip
    step = 1 if pages is None else max(1, ceil(len(pages) / MOST_POINTS))
    for number, stage in enumerate(stages):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        part = rows[(rows["stage"] == stage) & rows["value"].notna()]
        drawn = None if pages is None else pages[pages["stage"] == stage].iloc[::step]
        longest = max([0.0, *part["high"].fillna(part["value"])])
        if drawn is not None and len(drawn):
            longest = max(longest, float(drawn["milliseconds"].max()))
        scale, unit = unit_of(longest)
        if drawn is not None:
            heights = [at.get(row, -1) for row in zip(drawn["run_id"], drawn["road"], strict=True)]
            # Golden steps spread neighbours apart, the same way each time.
            jitter = (np.arange(len(drawn)) * 0.618) % 1 * 0.6 - 0.3
            figure.add_trace(
                Scatter(
                    x=drawn["milliseconds"] / scale,
                    y=np.array(heights) + jitter,
                    mode="markers",
                    marker={"color": colour(stage), "size": 4, "opacity": 0.4},
                    text=[mark(page, 80) for page in drawn["page"]],
                    customdata=[duration(value) for value in drawn["milliseconds"]],
                    hovertemplate="%{text}<br>%{customdata}<extra></extra>",
                ),
                **place,
            )
        figure.add_trace(
            Scatter(
                x=part["value"] / scale,
                y=[at[row] for row in zip(part["run_id"], part["road"], strict=True)],
                mode="markers",
                marker={
                    "color": colour(stage), "size": 10,
                    "symbol": ["circle" if exact else "circle-open" for exact in part["of_pages"]],
                    "line": {"width": [1 if exact else 2 for exact in part["of_pages"]],
                             "color": ["rgba(0,0,0,.55)" if exact else colour(stage)
                                       for exact in part["of_pages"]]},
                },
                error_x=_whiskers(part, scale, colour(stage)),
                customdata=[_spread_words(row) for row in part.to_dict("records")],
                hovertemplate="%{customdata}<extra></extra>",
            ),
            **place,
        )  # fmt: skip
        figure.update_xaxes(
            range=[0, (longest / scale or 1.0) * 1.08], nticks=5, fixedrange=True, zeroline=True,
            title={"text": _panel_title(stage, unit), "standoff": 4, "font": {"size": 12}}, **place,
        )  # fmt: skip
        figure.update_yaxes(
            tickvals=list(range(len(runs))), ticktext=[_row_words(row, names, wide=False) for row in runs],
            range=[len(runs) - 0.4, -0.6], fixedrange=True, automargin=True, zeroline=False, **place,
        )  # fmt: skip
    figure.update_layout(height=height, margin={**_MARGIN, "t": 26}, showlegend=False)
    return figure


def _panel_title(stage: str, unit: str) -> str:
    """On two lines where the stage lies inside another: panels are narrow."""
    outer, _, inner = stage_name(stage).rpartition(" › ")
    return f"<b>{mark(inner, 24)}</b> ({unit})" + (f"<br>in {outer}" if outer else "")


def _whiskers(part: pd.DataFrame, scale: float, shade: str, width: int = 5) -> dict[str, object]:
    """Error bars from low to high; where there is no spread, none."""
    return {
        "type": "data", "symmetric": False, "color": shade, "thickness": 2, "width": width,
        "array": ((part["high"] - part["value"]).clip(lower=0) / scale).fillna(0),
        "arrayminus": ((part["value"] - part["low"]).clip(lower=0) / scale).fillna(0),
    }  # fmt: skip


def _spread_words(row: Mapping[str, object]) -> str:
    if row["of_pages"]:
        words = f"median {_time(row['value'])}"
        if known(row["low"]):
            words += f"<br>p5 {_time(row['low'])}, p95 {_time(row['high'])}"
        return f"{words}<br>n {plural(int(row['n']), 'page')}" if known(row["n"]) else words  # type: ignore[call-overload]
    words = f"mean {_time(row['value'])}"
    return f"{words} ± {_time(row['std'])}" if known(row["std"]) else words


def _time(value: object) -> str:
    return duration(float(value) if known(value) else None)  # type: ignore[arg-type]


# --- over time ------------------------------------------------------------------------------------


def trend(rows: pd.DataFrame, levels: pd.DataFrame, changes: pd.DataFrame, stage: str, axis: str) -> Figure:
    """One stage run after run: values with their spread, their levels, and a line where a level changed.

    `rows`, `levels` and `changes` are those of `timing_tables`; `axis` is "run" (equal steps) or "time".
    A symbol is a condition: one GPU, engine, preset.
    """
    from plotly.graph_objects import Figure, Scatter

    scale, unit = unit_of(float(rows["high"].fillna(rows["value"]).max()) if len(rows) else 0.0)
    by_run = axis == "run"
    place = dict(zip(rows["position"], rows["position"] if by_run else rows["created"], strict=True))
    shade = colour(stage)
    figure = Figure()
    for number, name in enumerate(dict.fromkeys(rows["condition"])):
        part = rows[(rows["condition"] == name) & rows["value"].notna()]
        figure.add_trace(
            Scatter(
                x=[place[position] for position in part["position"]],
                y=part["value"] / scale,
                mode="markers",
                name=mark(name, 46),
                legendgroup=str(number),
                marker={
                    "color": shade, "size": 9, "symbol": [
                        SYMBOLS[number % len(SYMBOLS)] + ("" if exact else "-open")
                        for exact in part["of_pages"]
                    ],
                    "line": {"width": 1, "color": "rgba(0,0,0,.5)"},
                },
                error_y={**_whiskers(part, scale, shade, width=3), "thickness": 1},
                customdata=[
                    f"{_spread_words(row)}<br>{moment(row['created'])} UTC<br>run {mark(row['run_id'], 60)}"
                    + (f"<br>commit {mark(str(row['git_commit']), 10)}" if known(row["git_commit"]) else "")
                    for row in part.to_dict("records")
                ],
                hovertemplate="%{customdata}<extra></extra>",
                showlegend=True,
            )
        )  # fmt: skip
        of_name = levels[levels["condition"] == name]
        xs: list[object] = []
        ys: list[float | None] = []
        for level in of_name.to_dict("records"):
            xs += [place[level["first"]], place[level["last"]], None]
            ys += [level["value"] / scale, level["value"] / scale, None]
        figure.add_trace(
            Scatter(
                x=xs, y=ys, mode="lines", legendgroup=str(number), showlegend=False, hoverinfo="skip",
                line={"color": NEUTRAL, "width": 2.5},
            )
        )  # fmt: skip
    for number, change in enumerate(changes.to_dict("records")):
        at = place[change["first"]]
        if by_run:
            at = at - 0.5
        figure.add_shape(
            type="line", x0=at, x1=at, y0=0, y1=1, yref="paper",
            line={"color": NEUTRAL, "width": 1.2, "dash": "dash"},
        )  # fmt: skip
        figure.add_annotation(
            x=at, y=1, yref="paper", yanchor="top", xanchor="left", xshift=3, yshift=-15 * (number % 3),
            showarrow=False, font={"size": 12},
            text=speed_ratio(float(change["value"]), float(change["before"])),
        )  # fmt: skip
    shown = rows if len(rows) <= 8 else rows.iloc[np.linspace(0, len(rows) - 1, 8).round().astype(int)]
    xaxis: dict[str, object] = {"title": {"text": "time (UTC)"}, "type": "date"}
    if by_run:
        xaxis = {
            "title": {"text": "run after run (UTC)"}, "tickvals": list(shown["position"]),
            "ticktext": [f"{created:%m-%d}<br>{created:%H:%M}" for created in shown["created"]],
            "range": [-0.7, len(rows) - 0.3], "tickangle": 0, "zeroline": False,
        }  # fmt: skip
    figure.update_layout(
        height=400 + 20 * min(rows["condition"].nunique(), 6),
        margin=_MARGIN,
        legend=_LEGEND | {"itemclick": "toggle", "orientation": "v", "y": 1.02},
        xaxis=xaxis,
        yaxis={"title": {"text": f"{mark(stage_name(stage), 40)} ({unit})"}},
        uirevision=stage,
    )
    return figure


# --- A against B ----------------------------------------------------------------------------------


def ratios(found: pd.DataFrame, neutral: float) -> Figure:
    """B's time over A's with its interval, a row a stage, on a logarithmic axis; the neutral band is grey.

    `found` is `timing_tables.comparison`; `neutral` the half width of the band as a share.
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
        place, shade = row["stage"], colour(row["stage"])
        at = int(shown.index[shown["stage"] == place][0])
        sure = known(row["low"])
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
                    f"<br>{_time(row['median_a'])} → {_time(row['median_b'])}"
                    f"<br>n {plural(int(row['n']), 'page')}"
                ],
                hovertemplate="%{customdata}<extra></extra>",
                showlegend=False,
            )
        )  # fmt: skip
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=at, yanchor="middle", showarrow=False,
            text=f"{speed_ratio(row['median_b'], row['median_a'])}, <b>{row['verdict']}</b>"
            if row["verdict"] != "no evidence" else "no evidence",
            font={"size": 12}, align="right",
        )  # fmt: skip
    ticks = _ratio_ticks(low, high)
    # The words stand to the right of every interval.
    right = log10(high) + 0.42 * (log10(high) - log10(low))
    figure.update_layout(
        height=92 + 34 * max(len(shown), 1),
        margin={**_MARGIN, "t": 30},
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
            marker={"color": colour(stage), "size": 9, "opacity": 0.85, "line": _OUTLINE},
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
        margin={**_MARGIN, "t": 26},
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


# --- kernels --------------------------------------------------------------------------------------


def kernel_bars(kernels: pd.DataFrame) -> Figure:
    """Kernels of one run, the longest first, with their share of their stage's GPU time.

    `kernels` is the query `kernels` of one run.
    """
    from plotly.graph_objects import Bar, Figure

    shown = kernels.reset_index(drop=True)
    stages = [stage if known(stage) else None for stage in shown["stage"]]
    figure = Figure()
    for stage in dict.fromkeys(stages):
        part = shown[[name == stage for name in stages]]
        figure.add_trace(
            Bar(
                x=100 * part["share"],
                y=part.index,
                orientation="h",
                width=0.72,
                name=mark(stage_name(stage), 40) if stage else "all stages",
                marker={"color": colour(stage) if stage else NEUTRAL, "line": _OUTLINE},
                text=[f"{significant(100 * share)} %" for share in part["share"]],
                textposition="outside",
                cliponaxis=False,
                customdata=[
                    f"{mark(row['name'], 100)}<br>{amount(row['total_ns'] / 1e9, 's')}"
                    + (f" in {int(row['instances']):,} calls" if known(row["instances"]) else "")
                    for row in part.to_dict("records")
                ],
                hovertemplate="%{customdata}<extra></extra>",
                showlegend=True,
            )
        )
    largest = float(shown["share"].max() * 100) if len(shown) else 100.0
    figure.update_layout(
        height=96 + 26 * max(len(shown), 1),
        margin=_MARGIN,
        legend=_LEGEND | {"itemclick": False},
        barmode="overlay",
        xaxis={"title": {"text": "share of the stage's GPU time (%)"}, "range": [0, largest * 1.14],
               "fixedrange": True},
        yaxis={"tickvals": list(shown.index), "ticktext": [mark(name, 44) for name in shown["name"]],
               "range": [len(shown) - 0.4, -0.6], "fixedrange": True, "automargin": True},
    )  # fmt: skip
    return figure

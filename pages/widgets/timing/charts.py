"""DataFrame -> figure for times over runs, pure. Vision is drawn inside prefill; colours are the stages'."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsocr_core.base.formatting import amount, plural, scale_of, signed, significant
from dsocr_core.runs.kernel_names import kernel_names
from dsocr_core.runs.kernel_pairs import BOTH
from dsocr_core.runs.labels import apart, has_value, moment, short
from dsocr_core.runs.measures import Measure
from dsocr_core.runs.timings import in_order
from pages.widgets.shared.bars import Bar, BarRow, legend_html, panel_html
from pages.widgets.shared.labels import mark, time_words
from pages.widgets.shared.plots import NEUTRAL, figure
from pages.widgets.shared.stages import Part, StageLine, colour, legend, panel, stage_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MARGIN = {"l": 8, "r": 16, "t": 34, "b": 42}
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
B_COLOUR = "#0072B2"
"""Bars of B, on A's, which are neutral."""
_LEGEND = {
    "orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemdoubleclick": False,
    "traceorder": "normal", "font": {"size": 11},
}  # fmt: skip
_LEGEND_WIDTH = 60
"""Letters of a line of the legend: as many as a telephone shows."""

Names = Mapping[str, tuple[str, str]]
"""Two lines a run, `labels.chart_names`."""


def unit_of(longest_ms: float) -> tuple[float, str]:
    """Give what to divide milliseconds by, and the unit's name."""
    return (1000.0, "s") if longest_ms >= 999.5 else (1.0, "ms")


def spread_words(row: Mapping[Hashable, Any], measure: Measure) -> str:
    """Median and percentiles over a run's pages; its mean, where there are no times of pages."""
    if row["of_pages"]:
        words = f"median {time_words(row['value'])}"
        if measure.column:
            words = f"{mark(measure.name)}: {measure.write(row['value'])}"
        if has_value(row["low"]):
            words += f"<br>p5 {time_words(row['low'])}, p95 {time_words(row['high'])}"
        return f"{words}<br>n {plural(int(row['n']), 'page')}" if has_value(row["n"]) else words
    words = f"mean {time_words(row['value'])}"
    return f"{words} ± {time_words(row['std'])}" if has_value(row["std"]) else words


# --- stages over runs -----------------------------------------------------------------------------


def stage_bars(rows: pd.DataFrame, names: Names) -> str:
    """Stages of each run on one time axis from zero, as HTML. `rows` is `timings.stage_rows`."""
    lines = []
    for (run_id, backend), part in rows[rows["value"].notna()].groupby(["run_id", "backend"], sort=False):
        first, second = names.get(run_id, (run_id, ""))
        parts: list[Part] = [
            (row.stage, row.value / 1e3, bool(row.inside_prefill), "median" if row.of_pages else "mean")
            for row in part[["stage", "value", "inside_prefill", "of_pages"]].itertuples(index=False)
        ]
        lines.append(StageLine(f"{short(first, 24)} {short(backend, 12)}", parts, short(second, 36)))
    return legend(in_order(rows["stage"])) + panel(lines, "s")


# --- over time ------------------------------------------------------------------------------------

_HEADLINE = {"color": NEUTRAL, "width": 2.6, "dash": "solid"}
_FAR = 8
"""Times as long: from there on a trend is drawn on a logarithmic axis."""


def trend(rows: pd.DataFrame, levels: pd.DataFrame, changes: pd.DataFrame, measure: Measure) -> Figure:
    """One measure run after run: values with their spread, their levels, and a line where a level changed.

    `rows`, `levels` and `changes` are those of `timings` and `statistics`; runs of one commit stand over each
    other. A symbol is a condition: one GPU, engine, preset.
    The last change is the headline: its line is solid, and its words are there; a table has the others.
    """
    longest = float(rows["high"].fillna(rows["value"]).max()) if len(rows) else 0.0
    scale, unit = (
        unit_of(longest) if measure.unit == "ms" else (0.01, "%") if measure.unit == "%" else (1.0, "")
    )
    places = pd.factorize(rows["git_commit"].fillna("not known"))[0]
    x_of = dict(zip(rows["position"], places, strict=True))
    shade = colour("decode" if measure.column else measure.name)
    points = dict(iter(rows[list(_OF_POINT)].groupby("condition", sort=False)))
    steps = dict(iter(levels.groupby("condition", sort=False)))
    spreads, marks, level_lines = [], [], []
    _, names = apart(map(str, points))
    for number, (name, part) in enumerate(points.items()):
        group = {"type": "scatter", "legendgroup": str(number)}
        records = part[part["value"].notna()].to_dict("records")
        # One line for all spreads: whiskers of their own for a thousand runs keep a browser busy for seconds.
        spreads.append(
            group | _pieces(
                (x_of[row["position"]], x_of[row["position"]], row["low"] / scale, row["high"] / scale)
                for row in records if has_value(row["low"]) and has_value(row["high"])
            )
        )  # fmt: skip
        sign = SYMBOLS[number % len(SYMBOLS)]
        marks.append(
            group | {
                "x": [x_of[row["position"]] for row in records],
                "y": [row["value"] / scale for row in records],
                "mode": "markers",
                "name": "<br>".join(map(mark, wrap(short(names[str(name)], 96), _LEGEND_WIDTH))),
                "marker": {
                    "color": shade, "size": 9, "line": {"width": 1, "color": "rgba(0,0,0,.5)"},
                    "symbol": [sign + ("" if row["of_pages"] else "-open") for row in records],
                },
                "customdata": [_point_words(row, measure) for row in records],
                "hovertemplate": "%{customdata}<extra></extra>",
                "showlegend": True,
            }
        )  # fmt: skip
        found = steps[name].to_dict("records") if name in steps else ()
        level_lines.append(
            group | _pieces(
                (x_of[level["first"]], x_of[level["last"]], level["value"] / scale, level["value"] / scale)
                for level in found
            )
        )  # fmt: skip
    traces = [
        *_lines(spreads, {"color": shade, "width": 1}),
        *marks,
        *_lines(level_lines, {"color": NEUTRAL, "width": 2.5}),
    ]
    shapes, annotations = [], []
    for number, change in enumerate(reversed(changes.to_dict("records"))):
        at = x_of[change["first"]] - 0.5
        shapes.append(
            {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
             "line": {"color": NEUTRAL, "width": 1.2, "dash": "dash"} if number else _HEADLINE}
        )  # fmt: skip
        if not number:
            words = measure.change(float(change["before"]), float(change["value"]))
            annotations.append(
                {"x": at, "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left", "xshift": 3,
                 "showarrow": False, "font": {"size": 12}, "text": f"<b>{words}</b>"}
            )  # fmt: skip
    ticks = rows.assign(place=places).drop_duplicates("place")
    ticks = ticks.iloc[np.linspace(0, len(ticks) - 1, min(len(ticks), 8)).round().astype(int)]
    xaxis = {
        "title": {"text": "commit after commit"},
        "tickvals": list(ticks["place"]),
        "ticktext": [_commit_tick(commit) for commit in ticks["git_commit"]],
        "range": [min(places) - 0.7, max(places) + 0.7],
        "zeroline": False,
        "automargin": True,
    }
    layout = {
        "height": 400 + 20 * min(len(points), 6),
        "margin": MARGIN,
        "legend": _LEGEND | {"itemclick": "toggle", "orientation": "v", "y": 1.02, "maxheight": 150},
        "shapes": shapes,
        "annotations": annotations,
        "xaxis": xaxis,
        "yaxis": {
            "title": {
                "text": mark(measure.name) + f" ({unit})" * bool(unit)
                if measure.column
                else f"{mark(stage_name(measure.name), 40)} ({unit})"
            },
            # Series far apart would flatten each other's steps.
            **({"type": "log", "dtick": "D2"} if _far_apart(rows["value"]) else {}),
        },
        "uirevision": measure.name,
    }
    return figure(traces, layout)


_SERIES_ALONE = 6
"""With more series than that, all spreads are one line and all levels another: each line more costs a browser
some ten milliseconds. The legend then takes away a series' points alone."""


def _pieces(ends: Iterable[tuple[Any, Any, float, float]]) -> dict[str, list[Any]]:
    """Pieces of a line, each from (x0, y0) to (x1, y1) of x0, x1, y0, y1, with a gap behind it."""
    pieces = list(ends)
    x = [at for x0, x1, _, _ in pieces for at in (x0, x1, None)]
    return {"x": x, "y": [at for _, _, y0, y1 in pieces for at in (y0, y1, None)]}


def _lines(series: list[dict[str, Any]], style: dict[str, object]) -> list[dict[str, Any]]:
    """A line a series; of many series one for all."""
    line = {"type": "scatter", "mode": "lines", "showlegend": False, "hoverinfo": "skip", "line": style}
    if len(series) <= _SERIES_ALONE:
        return [line | each for each in series]
    return [line | {axis: [at for each in series for at in each[axis]] for axis in ("x", "y")}]


def _commit_tick(commit: object) -> str:
    return mark(str(commit)[:7]) if has_value(commit) else "not known"


def _point_words(row: Mapping[Hashable, Any], measure: Measure) -> str:
    commit = f"<br>commit {mark(str(row['git_commit']), 10)}" if has_value(row["git_commit"]) else ""
    made = f"{moment(row['created'])} UTC<br>run {mark(row['run_id'], 60)}{commit}"
    return f"{spread_words(row, measure)}<br>{made}"


_OF_POINT = (
    "condition", "position", "created", "run_id", "git_commit", "of_pages", "n", "value", "low", "high",
    "std",
)  # fmt: skip
"""Columns that are drawn and said of a run."""


def _far_apart(values: pd.Series) -> bool:
    there = values[values > 0]
    return len(there) > 0 and bool(there.max() > _FAR * there.min())


# --- kernels --------------------------------------------------------------------------------------


def kernel_bars(kernels: pd.DataFrame) -> str:
    """Kernels of one run, the longest first, with their share of their stage's GPU time, as HTML.

    `kernels` is the query `kernels` of one run.
    """
    staged = [str(stage) if has_value(stage) else "" for stage in kernels["stage"]]
    stages = [short(stage_name(stage), 40) if stage else "all stages" for stage in staged]
    shades = [colour(stage) if stage else NEUTRAL for stage in staged]
    words = [
        f"{short(row.name, 160)}: {amount(row.total_ns / 1e9, 's')}"
        + (f" in {int(row.instances):,} calls" if has_value(row.instances) else "")
        for row in kernels[["name", "total_ns", "instances"]].itertuples(index=False)
    ]
    rows = [
        BarRow(short(name, 44), [Bar(0.0, share, shade, said)], end=f"{significant(share)} %")
        for name, share, shade, said in zip(
            kernel_names(kernels["name"].tolist()), 100 * kernels["share"], shades, words, strict=True
        )
    ]
    legend = legend_html(dict(zip(stages, shades, strict=True)))
    return f"<div class='dsocr-bars-wide'>{legend}{panel_html(rows, '%')}</div>"


def kernel_pair_bars(rows: pd.DataFrame, by_call: bool) -> str:
    """Kernels of two runs, A's time as the outer bar and B's in it, as HTML.

    `rows` is `kernel_pairs` with short names; `by_call`: the time of one launch in place of all.
    """
    of = "each_s" if by_call else "total_s"
    times = rows[[f"{of}_a", f"{of}_b"]].fillna(0.0)
    size, unit = scale_of(float(times.max(axis=None)), "s")
    lines = []
    for row, (a, b) in zip(rows.to_dict("records"), times.to_numpy().tolist(), strict=True):
        words = f"{row['name']}: A {amount(a, 's') if a else 'none'}, B {amount(b, 's') if b else 'none'}"
        sides = [Bar(0.0, a, NEUTRAL, words), Bar(0.0, b, B_COLOUR, words, inside=True)]
        end = f"{signed(row['change_s'] / size)} {unit}" if row["found"] == BOTH else row["found"]
        lines.append(BarRow(short(row["name"], 44), sides, end=end))
    of_one = ", one launch" * by_call
    legend = legend_html({f"A{of_one}": NEUTRAL, f"B{of_one}": B_COLOUR})
    return f"<div class='dsocr-bars-wide'>{legend}{panel_html(lines, unit, size)}</div>"

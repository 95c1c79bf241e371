"""DataFrame -> figure for times over runs, pure. Vision is drawn inside prefill; colours are the stages'."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import ceil
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dsocr_core.base.words import amount, duration, plural, scale_of, signed, significant
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

MOST_POINTS = 6000
"""A browser draws so many points without stumbling; of more pages every so many-th is drawn."""
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
_PANELS_IN_A_ROW = 3

Row = tuple[str, str]
"""Run and backend."""
Names = Mapping[str, tuple[str, str]]
"""Two lines a run, `labels.chart_names`."""


def unit_of(longest_ms: float) -> tuple[float, str]:
    """Give what to divide milliseconds by, and the unit's name."""
    return (1000.0, "s") if longest_ms >= 999.5 else (1.0, "ms")


def whiskers(part: pd.DataFrame, scale: float, shade: str) -> dict[str, object]:
    """Error bars from low to high; where there is no spread, none."""
    return {
        "type": "data", "symmetric": False, "color": shade, "thickness": 2, "width": 5,
        "array": ((part["high"] - part["value"]).clip(lower=0) / scale).fillna(0),
        "arrayminus": ((part["value"] - part["low"]).clip(lower=0) / scale).fillna(0),
    }  # fmt: skip


def spread_words(row: Mapping[Hashable, Any], measure: Measure | None = None) -> str:
    """Median and percentiles over a run's pages; its mean, where there are no times of pages."""
    if row["of_pages"]:
        words = f"median {time_words(row['value'])}"
        if measure is not None and measure.column:
            words = f"{mark(measure.name)}: {measure.write(row['value'])}"
        if has_value(row["low"]):
            words += f"<br>p5 {time_words(row['low'])}, p95 {time_words(row['high'])}"
        return f"{words}<br>n {plural(int(row['n']), 'page')}" if has_value(row["n"]) else words
    words = f"mean {time_words(row['value'])}"
    return f"{words} ± {time_words(row['std'])}" if has_value(row["std"]) else words


def _row_words(row: Row, names: Names) -> str:
    first, _ = names.get(row[0], (row[0], ""))
    return f"{mark(first, 40)} <b>{mark(row[1], 12)}</b>"


def _rows_of(frame: pd.DataFrame) -> list[Row]:
    return list(dict.fromkeys(zip(frame["run_id"], frame["backend"], strict=True)))


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


def stage_spread(rows: pd.DataFrame, names: Names, pages: pd.DataFrame | None = None) -> Figure:
    """A panel a stage, each from zero: median and p5 to p95 of each run; rings are means with one standard
    deviation. `rows` is `timings.stage_rows`; the query `page_timings` adds every page's time.
    """
    stages, runs = in_order(rows["stage"]), _rows_of(rows)
    at = {row: number for number, row in enumerate(runs)}
    columns = min(_PANELS_IN_A_ROW, max(len(stages), 1))
    lines = ceil(max(len(stages), 1) / columns)
    height = lines * (96 + 26 * max(len(runs), 2)) + 20
    step = 1 if pages is None else max(1, ceil(len(pages) / MOST_POINTS))
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"height": height, "margin": {**MARGIN, "t": 26}, "showlegend": False}
    for number, stage in enumerate(stages):
        line, column = divmod(number, columns)
        x, y = f"x{number + 1 if number else ''}", f"y{number + 1 if number else ''}"
        marks = {"type": "scatter", "mode": "markers", "xaxis": x, "yaxis": y,
                 "hovertemplate": "%{customdata}<extra></extra>"}  # fmt: skip
        part = rows[(rows["stage"] == stage) & rows["value"].notna()]
        drawn = None if pages is None else pages[pages["stage"] == stage].iloc[::step]
        longest = max([0.0, *part["high"].fillna(part["value"])])
        if drawn is not None and len(drawn):
            longest = max(longest, float(drawn["milliseconds"].max()))
        scale, unit = unit_of(longest)
        if drawn is not None:
            heights = [at.get(row, -1) for row in zip(drawn["run_id"], drawn["backend"], strict=True)]
            # Golden steps spread neighbours apart, the same way each time.
            jitter = (np.arange(len(drawn)) * 0.618) % 1 * 0.6 - 0.3
            traces.append(
                marks | {
                    "x": drawn["milliseconds"] / scale, "y": np.array(heights) + jitter,
                    "marker": {"color": colour(stage), "size": 4, "opacity": 0.4},
                    "customdata": [
                        f"{mark(page, 80)}<br>{duration(value)}"
                        for page, value in zip(drawn["page"], drawn["milliseconds"], strict=True)
                    ],
                }
            )  # fmt: skip
        exact = part["of_pages"].tolist()
        edges = ["rgba(0,0,0,.55)" if each else colour(stage) for each in exact]
        traces.append(
            marks | {
                "x": part["value"] / scale,
                "y": [at[row] for row in zip(part["run_id"], part["backend"], strict=True)],
                "marker": {
                    "color": colour(stage), "size": 10,
                    "symbol": ["circle" if each else "circle-open" for each in exact],
                    "line": {"width": [1 if each else 2 for each in exact], "color": edges},
                },
                "error_x": whiskers(part, scale, colour(stage)),
                "customdata": [spread_words(row) for row in part.to_dict("records")],
            }
        )  # fmt: skip
        layout[f"xaxis{x[1:]}"] = {
            "anchor": y, "domain": _share(column, columns, 0.03), "fixedrange": True, "zeroline": True,
            "range": [0, (longest / scale or 1.0) * 1.08], "nticks": 5,
            "title": {"text": _panel_title(stage, unit), "standoff": 4, "font": {"size": 12}},
        }  # fmt: skip
        layout[f"yaxis{y[1:]}"] = {
            "anchor": x, "domain": _share(lines - 1 - line, lines, 72 / height), "fixedrange": True,
            "range": [len(runs) - 0.4, -0.6], "automargin": True, "zeroline": False,
            "tickvals": list(range(len(runs))), "showticklabels": column == 0,
            "ticktext": [_row_words(row, names) for row in runs],
        }  # fmt: skip
    return figure(traces, layout)


def _share(number: int, count: int, gap: float) -> list[float]:
    """Say where the panel of that number begins and ends, of `count` in a line with gaps between them."""
    width = (1 - gap * (count - 1)) / count
    return [number * (width + gap), number * (width + gap) + width]


def _panel_title(stage: str, unit: str) -> str:
    """On two lines where the stage lies inside another: panels are narrow."""
    outer, _, inner = stage_name(stage).rpartition(" › ")
    return f"<b>{mark(inner, 24)}</b> ({unit})" + (f"<br>in {outer}" if outer else "")


# --- over time ------------------------------------------------------------------------------------

_HEADLINE = {"color": NEUTRAL, "width": 2.6, "dash": "solid"}
_FAR = 8
"""Times as long: from there on a trend is drawn on a logarithmic axis."""


def trend(
    rows: pd.DataFrame, levels: pd.DataFrame, changes: pd.DataFrame, measure: Measure, axis: str
) -> Figure:
    """One measure run after run: values with their spread, their levels, and a line where a level changed.

    `rows`, `levels` and `changes` are those of `timings` and `statistics`; `axis` is "commit" (runs of one
    stand over each other), "run" (equal steps) or "time". A symbol is a condition: one GPU, engine, preset.
    The last change is the headline: its line is whole, and its words are always there.
    """
    longest = float(rows["high"].fillna(rows["value"]).max()) if len(rows) else 0.0
    scale, unit = (
        unit_of(longest) if measure.unit == "ms" else (0.01, "%") if measure.unit == "%" else (1.0, "")
    )
    steps_alike = axis != "time"
    places = {
        "commit": lambda: pd.factorize(rows["git_commit"].fillna("not known"))[0],
        "run": lambda: rows["position"], "time": lambda: rows["created"],
    }[axis]()  # fmt: skip
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
    labels = _LabelRows(places)
    shapes, annotations = [], []
    for number, change in enumerate(reversed(changes.to_dict("records"))):
        at = x_of[change["first"]]
        row_of_label = labels.take(at)
        if steps_alike:
            at = at - 0.5
        shapes.append(
            {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
             "line": {"color": NEUTRAL, "width": 1.2, "dash": "dash"} if number else _HEADLINE}
        )  # fmt: skip
        if row_of_label is not None:
            words = measure.change(float(change["before"]), float(change["value"]))
            annotations.append(
                {"x": at, "y": 1, "yref": "paper", "yanchor": "top", "xanchor": "left", "xshift": 3,
                 "yshift": -15 * row_of_label, "showarrow": False, "font": {"size": 12},
                 "text": words if number else f"<b>{words}</b>"}
            )  # fmt: skip
    xaxis: dict[str, object] = {"title": {"text": "time (UTC)"}, "type": "date"}
    if steps_alike:
        shown = rows.assign(place=places)
        if axis == "commit":
            shown = shown.drop_duplicates("place")
        shown = shown.iloc[np.linspace(0, len(shown) - 1, min(len(shown), 8)).round().astype(int)]
        xaxis = {
            "title": {"text": "commit after commit" if axis == "commit" else "run after run (UTC)"},
            "tickvals": list(shown["place"]),
            "ticktext": [_commit_tick(commit) for commit in shown["git_commit"]]
            if axis == "commit"
            else [f"{created:%m-%d}<br>{created:%H:%M}" for created in shown["created"]],
            "range": [min(places) - 0.7, max(places) + 0.7],
            "zeroline": False, **({"automargin": True} if axis == "commit" else {"tickangle": 0}),
        }  # fmt: skip
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


class _LabelRows:
    """Three rows for the words of changes, the last change first; one that would cover another has none."""

    _ROWS, _WIDTH = 3, 0.11

    def __init__(self, positions: Any) -> None:
        self._first, self._span = min(positions), (max(positions) - min(positions)) or 1
        self._starts = [2.0] * self._ROWS

    def take(self, at: Any) -> int | None:
        """The row for words that begin there, before those that were taken; None when none is free."""
        share = float((at - self._first) / self._span)
        for row, start in enumerate(self._starts):
            if share + self._WIDTH <= start:
                self._starts[row] = share
                return row
        return None


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

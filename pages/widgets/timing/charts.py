"""Charts of the Timing page: DataFrame -> Plotly figure, pure. Texts of others are escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

import pandas as pd

from analytic_model.hardware import Hardware
from dsocr_core.base.formatting import amount, duration, plural, significant, speed_ratio
from dsocr_core.models.family import inside_prefill
from dsocr_core.models.stages import Stage
from dsocr_core.runs.kernels import kernel_names
from dsocr_core.runs.labels import VISION, has_value, in_order
from pages.widgets.shared import plots
from pages.widgets.shared.labels import mark
from pages.widgets.shared.stages import colour, stage_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_SERIES, MOST_COMMITS = 8, 60
"""Series and commits that are drawn: a browser, and a reader, take no more."""
_SERIES = (
    "#3B6FB6", "#B0562B", "#7A5C9E", "#4F7F7F", "#A34A5B", "#7E8F2E", "#8A94A0", "#B08A2B",
)  # fmt: skip
"""None of the stages' colours."""
_MOST_MARKS = 12
"""Changes that are named, the largest: more lie on each other."""
_NEAR = 0.2
"""Powers of ten between two series whose words would lie on each other."""
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")


# --- rates over commits ---------------------------------------------------------------------------


def drawn(series: pd.DataFrame, marks: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """The series that are drawn, those of several commits and the newest first; and what is not, in words."""
    of = series.groupby("workload")["since"].agg(["size", "max"])
    of = of.assign(several=of["size"] > 1).sort_values(["several", "max", "size"], ascending=False)
    kept = of.index[of["several"]][:MOST_SERIES] if of["several"].any() else of.index[:MOST_SERIES]
    shown = series[series["workload"].isin(kept)]
    commits = list(shown.sort_values("since")["commit"].drop_duplicates())
    newest = shown["commit"].isin(commits[-MOST_COMMITS:])
    words = f" {plural(len(of) - len(kept), 'series', 'series')} not drawn." if len(of) > len(kept) else ""
    if len(commits) > MOST_COMMITS:
        words += f" The newest {MOST_COMMITS} of {len(commits):,} commits."
    there = set(zip(shown.loc[newest, "workload"], shown.loc[newest, "position"], strict=True))
    seen = [each in there for each in zip(marks["workload"], marks["position"], strict=True)]
    visible = marks[pd.Series(seen, marks.index, dtype=bool)]
    size = (visible["after"].astype(float) / visible["before"].astype(float)).map(
        lambda ratio: abs(log10(ratio))
    )
    return shown[newest], visible.loc[size.nlargest(_MOST_MARKS).index].sort_index(), words


def rates(series: pd.DataFrame, marks: pd.DataFrame) -> Figure:
    """Pages a second over commits, a line a series, each change in words at its own."""
    commits = list(series.sort_values("since")["commit"].drop_duplicates())
    cards = {name.partition(" on ")[2].partition(",")[0] for name in series["name"]}
    card = f" on {cards.pop()}" if len(cards) == 1 else ""  # said once, at the axis
    at = {commit: place for place, commit in enumerate(commits)}
    traces, annotations = [], []
    for place, (workload, part) in enumerate(series.groupby("workload", sort=False)):
        shade, name = _SERIES[place % len(_SERIES)], part["name"].iloc[0].replace(card, "", 1)
        rows = part.sort_values("position")
        x = {row.position: at[row.commit] for row in rows.itertuples()}
        rate = dict(zip(rows["position"], rows["pages_per_s"], strict=True))
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": mark(name),
                "x": list(x.values()), "y": list(rate.values()), "line": {"color": shade, "width": 2},
                "marker": {"size": 8, "symbol": _SYMBOLS[place % len(_SYMBOLS)]},
                "text": [
                    f"{row.commit}: {amount(row.pages_per_s, 'pages/s')}, {plural(len(row.run_ids), 'run')}"
                    for row in rows.itertuples()
                ],
                "hovertemplate": "%{text}<extra>%{fullData.name}</extra>", "showlegend": True,
            }
        )  # fmt: skip
        for change in marks[marks["workload"] == workload].to_dict("records"):
            before, after = change["before"], change["after"]
            sign, side = ("▲", 12) if after > before else ("▼", -12)
            annotations.append(
                {
                    "x": x[change["position"]], "y": rate[change["position"]], "yshift": side,
                    "text": f"<b>{sign} {significant(max(before, after) / min(before, after))}x</b>",
                    "hovertext": f"{speed_ratio(before, after)}, {change['words']}",
                    "showarrow": False, "font": {"size": 11, "color": shade},
                }
            )  # fmt: skip
    placed: list[tuple[int, float]] = []
    for note in annotations:
        note["y"] = log10(note["y"])  # as an annotation on a logarithmic axis has it
        if any(x == note["x"] and abs(y - note["y"]) < _NEAR for x, y in placed):
            note["yshift"] = -14  # two at one place: one above, one below
        placed.append((note["x"], note["y"]))
    ticks = list(range(0, len(commits), max(1, -(-len(commits) // 6))))
    layout = {
        "height": 300, "margin": plots.MARGIN | {"t": 10}, "annotations": annotations,
        "legend": plots.LEGEND | {"y": -0.16, "yanchor": "top", "itemclick": "toggle"},
        "xaxis": {"tickvals": ticks, "ticktext": [mark(commits[place]) for place in ticks],
                  "range": [-0.5, len(commits) - 0.5], "showgrid": False, "tickangle": 0},
        "yaxis": plots.log_axis(series["pages_per_s"], f"pages/s{card}"),
    }  # fmt: skip
    return plots.figure(traces, layout)


# --- stages of runs -------------------------------------------------------------------------------


def stacks(
    summary: pd.DataFrame, pace: pd.DataFrame, runs: Sequence[str], commits: Mapping[str, str]
) -> Figure:
    """Stage medians of runs, stacked in their order; vision is taken out of prefill, which has it inside.

    The page's own median is a mark: medians of parts do not add up to it.
    """
    times = summary.assign(value=summary["median"].fillna(summary["mean"]))
    table = times.pivot_table(index="run_id", columns="stage", values="value").reindex(list(runs))
    if VISION in table and set(table) & set(inside_prefill()):
        table = table.drop(columns=VISION)  # its parts say more
    inner = [stage for stage in table if stage in (VISION, *inside_prefill())]
    if Stage.PREFILL in table:
        table[Stage.PREFILL] = (table[Stage.PREFILL] - table[inner].sum(axis=1)).clip(lower=0)
    places = list(range(len(runs)))
    scale, unit = (1e3, "s") if table.sum(axis=1).max() >= 999.5 else (1.0, "ms")
    traces: list[dict[str, Any]] = [
        {
            "type": "bar", "name": mark(stage_name(stage)) + " without vision" * bool(
                stage == Stage.PREFILL and inner
            ),
            "x": places, "y": [value / scale if has_value(value) else None for value in table[stage]],
            "marker": {"color": colour(stage)}, "showlegend": True,
            "text": [duration(value) if has_value(value) else "" for value in table[stage]],
            "textposition": "none",
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
        }
        for stage in in_order(table.columns)
    ]  # fmt: skip
    whole = pace.set_index("run_id")["page_ms"].reindex(list(runs))
    traces.append(
        {
            "type": "scatter", "mode": "markers", "name": "whole page, median", "x": places,
            "y": [value / scale if has_value(value) else None for value in whole],
            "marker": {"symbol": "diamond-open", "size": 9, "color": plots.NEUTRAL, "line": {"width": 2}},
            "text": [duration(value) if has_value(value) else "" for value in whole], "showlegend": True,
            "hovertemplate": "%{text}<extra>whole page</extra>",
        }
    )  # fmt: skip
    layout = {
        "barmode": "stack", "height": 380, "margin": plots.MARGIN,
        "legend": plots.LEGEND | {"y": -0.14, "yanchor": "top"},
        "xaxis": {"tickvals": places, "ticktext": [mark(commits.get(run, run[-8:])) for run in runs]},
        "yaxis": {"title": {"text": f"a page ({unit})"}, "rangemode": "tozero"},
    }  # fmt: skip
    return plots.figure(traces, layout)


# --- two runs -------------------------------------------------------------------------------------


def ratios(found: pd.DataFrame, neutral: float) -> Figure:
    """B's time over A's with its interval, a row a stage, on a logarithmic axis; the band is grey."""
    rows = found[found["ratio"].notna()].iloc[::-1]
    names = [stage_name(stage) for stage in rows["stage"]]
    trace = {
        "type": "scatter", "mode": "markers", "x": list(rows["ratio"]), "y": list(map(mark, names)),
        "error_x": {"type": "data", "array": list(rows["high"] - rows["ratio"]),
                    "arrayminus": list(rows["ratio"] - rows["low"]), "thickness": 2, "color": plots.NEUTRAL},
        "marker": {"size": 10, "color": [colour(stage) for stage in rows["stage"]],
                   "line": {"width": 1, "color": plots.EDGE}},
        "text": [
            f"B/A {significant(row.ratio)}, 95 % from {significant(row.low)} to {significant(row.high)}"
            for row in rows.itertuples()
        ],
        "hovertemplate": "%{y}: %{text}<extra></extra>", "showlegend": False,
    }  # fmt: skip
    band = {"type": "rect", "x0": 1 / (1 + neutral), "x1": 1 + neutral, "y0": 0, "y1": 1, "yref": "paper",
            "fillcolor": plots.NEUTRAL, "opacity": 0.24, "line": {"width": 0}}  # fmt: skip
    layout = {
        "height": 90 + 26 * len(rows), "margin": plots.MARGIN | {"t": 10}, "shapes": [band],
        "xaxis": {"type": "log", "title": {"text": "time of B over time of A: left of 1 B is faster"},
                  "nticks": 8, "exponentformat": "none"},
        "yaxis": {"automargin": True},
    }  # fmt: skip
    return plots.figure([trace], layout)


# --- kernels --------------------------------------------------------------------------------------

_CLASSES = {
    "memory": ("#0072B2", "circle"), "compute": ("#D55E00", "diamond"), "latency": (plots.NEUTRAL, "square"),
}  # fmt: skip


def kernel_roofline(rows: pd.DataFrame, device: Hardware) -> Figure:
    """Kernels whose FLOPs were counted, under the device's bandwidth and the peaks of what they use.

    With a column `side` marks of A are open. The tensor cores' dense bf16 peak is a line, that of float32
    outside them a broken one.
    """
    classes, side = rows["class"].fillna(""), rows.get("side", pd.Series("", rows.index))
    names = kernel_names(rows["kernel"].tolist())
    points = rows.assign(
        group=[f"{name} bound" for name in classes],
        intensity=rows["flops"] / rows["bytes"].clip(lower=1),
        flops_per_s=rows["flops"] / rows["duration_s"],
        symbol=[
            _CLASSES.get(name, ("", "circle"))[1] + "-open" * (of == "A")
            for name, of in zip(classes, side, strict=True)
        ],
        edge=[2.0 if of == "A" else 0.6 for of in side],
        # The larger the mark, the larger the part of the time.
        size=8 + 40 * rows["share"].fillna(0).clip(0, 1) ** 0.5,
    )
    points["words"] = [
        f"{of}{': ' * bool(of)}{mark(name)}: {amount(row.flops_per_s, 'FLOP/s')}, "
        f"{significant(row.intensity)} FLOP a byte, {amount(row.duration_s, 's')}"
        for name, of, row in zip(names, side, points.itertuples(), strict=True)
    ]
    marks = {
        f"{name} bound": {"color": shade, "symbol": symbol}
        for name, (shade, symbol) in _CLASSES.items()
        if (classes == name).any()
    }
    words = f"FLOPs a byte of DRAM · {device.name}, {amount(device.bandwidth, 'B/s')}"
    more = {"height": 400, "margin": plots.MARGIN | {"t": 52}}
    return plots.roofline(points, roofs(rows, device), device.bandwidth, marks, words, more)


def roofs(rows: pd.DataFrame, device: Hardware) -> list[tuple[str, float, str]]:
    """(name, FLOP/s, line) of each unit that the kernels use, as far as the device's peak is known."""
    tensor = rows["tensor_flops"].fillna(0)
    found = []
    if device.bfloat16_tflops is not None and ((tensor > 0).any() or device.float32_tflops is None):
        found.append(("tensor cores, bf16", device.peak_flops("bfloat16"), "solid"))
    if (rows["flops"] - tensor > 0).any() and device.float32_tflops is not None:
        found.append(("float32, no tensor cores", device.peak_flops("float32"), "dash"))
    return found

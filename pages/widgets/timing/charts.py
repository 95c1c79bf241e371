"""Charts of the Timing page: DataFrame -> Plotly figure, pure. Texts of others are escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analytic_model.hardware import Hardware
from dsocr_core.base.formatting import amount, duration, plural, significant, speed_ratio
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs.kernels import kernel_names
from dsocr_core.runs.labels import VISION, has_value, in_order
from pages.widgets.shared import plots
from pages.widgets.shared.labels import colour, mark, stage_name

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_SERIES, MOST_COMMITS = 8, 60
"""Series and commits that are drawn: a browser, and a reader, take no more."""
_SERIES = (
    "#3B6FB6", "#B0562B", "#7A5C9E", "#4F7F7F", "#A34A5B", "#7E8F2E", "#8A94A0", "#B08A2B",
)  # fmt: skip
"""Colours unlike the stages'."""
_MOST_MARKS = 12
"""Changes that are named, the largest: more lie on each other."""
_NEAR = 0.2
"""Powers of ten between two series whose words would lie on each other."""
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")


# --- rates over commits ---------------------------------------------------------------------------


def drawn(series: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """The series that are drawn, those of several commits and the newest first; steps; words on the rest."""
    of = series.groupby("workload")["since"].agg(["size", "max"])
    of = of.assign(several=of["size"] > 1).sort_values(["several", "max", "size"], ascending=False)
    kept = (of.index[of["several"]] if of["several"].any() else of.index)[:MOST_SERIES]
    shown = series[series["workload"].isin(kept)]
    commits = list(shown.sort_values("since")["commit"].drop_duplicates())
    words = f" {plural(len(of) - len(kept), 'series', 'series')} not drawn." if len(of) > len(kept) else ""
    if len(commits) > MOST_COMMITS:
        words += f" The newest {MOST_COMMITS} of {len(commits):,} commits."
    shown = shown[shown["commit"].isin(commits[-MOST_COMMITS:])]
    steps = shown[shown["words"].notna()]
    largest = np.log(steps["pages_per_s"] / steps["before"]).abs().nlargest(_MOST_MARKS)
    return shown, steps.loc[largest.index], words


def rates(series: pd.DataFrame, marks: pd.DataFrame) -> Figure:
    """Pages a second over commits, a line a series, each change in words at its own."""
    commits = list(series.sort_values("since")["commit"].drop_duplicates())
    cards = {name.partition(" on ")[2].partition(",")[0] for name in series["name"]}
    card = f" on {cards.pop()}" if len(cards) == 1 else ""  # said once, at the axis
    traces: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for place, (workload, part) in enumerate(series.groupby("workload", sort=False)):
        shade, rows = _SERIES[place % len(_SERIES)], part.sort_values("position")
        at = {
            row.position: (commits.index(row.commit), row.pages_per_s) for row in rows.itertuples()
        }  # fmt: skip
        words = [
            f"{row.commit}: {amount(row.pages_per_s, 'pages/s')}, {plural(len(row.run_ids), 'run')}"
            for row in rows.itertuples()
        ]
        name, symbol = mark(rows["name"].iloc[0].replace(card, "", 1)), _SYMBOLS[place % len(_SYMBOLS)]
        traces.append(
            plots.points(
                name, [x for x, _ in at.values()], [rate for _, rate in at.values()],
                {"size": 8, "symbol": symbol}, words, mode="lines+markers", line={"color": shade, "width": 2},
                hovertemplate="%{text}<extra>%{fullData.name}</extra>",
            )
        )  # fmt: skip
        for change in marks[marks["workload"] == workload].to_dict("records"):
            before, after = change["before"], change["pages_per_s"]
            x, rate = at[change["position"]]
            up, y = after > before, log10(rate)  # as an annotation on a logarithmic axis has it
            times = significant(max(before, after) / min(before, after))
            crowded = any(note["x"] == x and abs(note["y"] - y) < _NEAR for note in notes)
            notes.append(
                {
                    "x": x, "y": y, "yshift": -14 if crowded else 12 if up else -12,
                    "text": f"<b>{'▲' if up else '▼'} {times}x</b>",
                    "hovertext": f"{speed_ratio(before, after)}, {change['words']}",
                    "showarrow": False, "font": {"size": 11, "color": shade},
                }
            )  # fmt: skip
    ticks = list(range(0, len(commits), max(1, -(-len(commits) // 6))))
    return plots.figure(
        traces, 300, margin=plots.MARGIN | {"t": 10}, annotations=notes,
        legend=plots.below(-0.16, itemclick="toggle"),
        xaxis={"tickvals": ticks, "ticktext": [mark(commits[place]) for place in ticks],
               "range": [-0.5, len(commits) - 0.5], "showgrid": False, "tickangle": 0},
        yaxis=plots.log_axis(series["pages_per_s"], f"pages/s{card}"),
    )  # fmt: skip


# --- stages of runs -------------------------------------------------------------------------------


def stacks(
    summary: pd.DataFrame, pace: pd.DataFrame, runs: Sequence[str], commits: Mapping[str, str]
) -> Figure:
    """Stage medians of runs, stacked in their order; vision is taken out of prefill, which has it inside.

    The page's own median is a mark: medians of parts do not add up to it.
    """
    times = summary.assign(value=summary["median"].fillna(summary["mean"]))
    table = times.pivot_table(index="run_id", columns="stage", values="value").reindex(list(runs))
    if VISION in table and set(table) & set(INSIDE_PREFILL):
        table = table.drop(columns=VISION)  # its parts say more
    inner = [stage for stage in table if stage in (VISION, *INSIDE_PREFILL)]
    if Stage.PREFILL in table:
        table[Stage.PREFILL] = (table[Stage.PREFILL] - table[inner].sum(axis=1)).clip(lower=0)
    places = list(range(len(runs)))
    scale, unit = (1e3, "s") if table.sum(axis=1).max() >= 999.5 else (1.0, "ms")

    def trace(name: str, values: pd.Series, marker: dict[str, Any], **more: Any) -> dict[str, Any]:
        y = [value / scale if has_value(value) else None for value in values]
        words = [duration(value) if has_value(value) else "" for value in values]
        hover = "%{text}<extra>%{fullData.name}</extra>"
        return plots.points(name, places, y, marker, words, hovertemplate=hover, **more)

    traces = [
        trace(
            mark(stage_name(stage)) + " without vision" * bool(stage == Stage.PREFILL and inner),
            table[stage], {"color": colour(stage)}, type="bar", mode=None, textposition="none",
        ) for stage in in_order(table.columns)
    ]  # fmt: skip
    whole = pace.set_index("run_id")["page_ms"].reindex(list(runs))
    diamond = {"symbol": "diamond-open", "size": 9, "color": plots.NEUTRAL, "line": {"width": 2}}
    return plots.figure(
        [*traces, trace("whole page, median", whole, diamond)], 380, barmode="stack",
        legend=plots.below(-0.14),
        xaxis={"tickvals": places, "ticktext": [mark(commits.get(run, run[-8:])) for run in runs]},
        yaxis={"title": {"text": f"a page ({unit})"}, "rangemode": "tozero"},
    )  # fmt: skip


# --- two runs -------------------------------------------------------------------------------------


def ratios(found: pd.DataFrame, neutral: float) -> Figure:
    """B's time over A's with its interval, a row a stage, on a logarithmic axis; the band is grey."""
    rows = found[found["ratio"].notna()].iloc[::-1]
    words = [
        f"B/A {significant(row.ratio)}, 95 % from {significant(row.low)} to {significant(row.high)}"
        for row in rows.itertuples()
    ]
    marker = {"size": 10, "color": [colour(stage) for stage in rows["stage"]],
              "line": {"width": 1, "color": plots.EDGE}}  # fmt: skip
    bars = {"type": "data", "array": list(rows["high"] - rows["ratio"]), "thickness": 2,
            "arrayminus": list(rows["ratio"] - rows["low"]), "color": plots.NEUTRAL}  # fmt: skip
    names = [mark(stage_name(stage)) for stage in rows["stage"]]
    trace = plots.points(
        "", rows["ratio"], names, marker, words, error_x=bars, hovertemplate="%{y}: %{text}<extra></extra>"
    )
    band = {"type": "rect", "x0": 1 / (1 + neutral), "x1": 1 + neutral, "y0": 0, "y1": 1, "yref": "paper",
            "fillcolor": plots.NEUTRAL, "opacity": 0.24, "line": {"width": 0}}  # fmt: skip
    return plots.figure(
        [trace], 90 + 26 * len(rows), margin=plots.MARGIN | {"t": 10}, shapes=[band],
        xaxis={"type": "log", "title": {"text": "time of B over time of A: left of 1 B is faster"},
               "nticks": 8, "exponentformat": "none"},
        yaxis={"automargin": True},
    )  # fmt: skip


# --- kernels --------------------------------------------------------------------------------------

_CLASSES = {
    "memory": ("#0072B2", "circle"), "compute": ("#D55E00", "diamond"), "latency": (plots.NEUTRAL, "square"),
}  # fmt: skip


def kernel_roofline(rows: pd.DataFrame, device: Hardware) -> Figure:
    """Kernels whose FLOPs were counted, under the device's bandwidth and the peaks of what they use.

    The tensor cores' dense bf16 peak is a line, that of float32 outside them a broken one.
    """
    classes = rows["class"].fillna("")
    names = kernel_names(rows["kernel"].tolist())
    points = rows.assign(
        group=[f"{name} bound" for name in classes],
        intensity=rows["flops"] / rows["bytes"].clip(lower=1),
        flops_per_s=rows["flops"] / rows["duration_s"],
        # The larger the mark, the larger the part of the time.
        size=8 + 40 * rows["share"].fillna(0).clip(0, 1) ** 0.5,
        words=[
            f"{mark(name)}, {amount(spent, 's')}"
            for name, spent in zip(names, rows["duration_s"], strict=True)
        ],
    )
    marks = {
        f"{name} bound": {"color": shade, "symbol": symbol}
        for name, (shade, symbol) in _CLASSES.items()
        if (classes == name).any()
    }
    label = f"FLOPs a byte of DRAM · {device.name}, {amount(device.bandwidth, 'B/s')}"
    return plots.roofline(points, roofs(rows, device), device.bandwidth, marks, label)


def roofs(rows: pd.DataFrame, device: Hardware) -> list[plots.Roof]:
    """(name, FLOP/s, line) of each unit that the kernels use, as far as the device's peak is known."""
    tensor = rows["tensor_flops"].fillna(0)
    found = []
    if device.bfloat16_tflops is not None and ((tensor > 0).any() or device.float32_tflops is None):
        found.append(("tensor cores, bf16", device.peak_flops("bfloat16"), "solid"))
    if (rows["flops"] - tensor > 0).any() and device.float32_tflops is not None:
        found.append(("float32, no tensor cores", device.peak_flops("float32"), "dash"))
    return found

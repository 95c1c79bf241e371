"""The tab Requirements of the FLOPs page: what a target takes, which devices and runs reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import duckdb
import pandas as pd
import streamlit as st

from analytic_model import frames
from analytic_model.recorded import best_words, reached
from analytic_model.requirements import (
    TARGETS,
    Requirements,
    Target,
    TargetError,
    requirements,
    sentence,
    work_of,
)
from analytic_model.sweep import of_axis, spread
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.words import percent
from dsocr_core.runs.labels import chart_names
from pages.widgets.flops import stages
from pages.widgets.flops.address import key, number_input, text, value
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import figure, plots, resources, table
from pages.widgets.shared.labels import mark
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.plots import Series
from pages.widgets.shared.table import Column

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from analytic_model.policy import Policy
    from dsocr_core.models.config import ModelConfig
    from dsocr_core.runs.store import History

_WORDS: dict[str, str] = {
    "ttft": "Time to first token", "tpot": "Time per output token", "pages": "Pages a second",
}  # fmt: skip
_UNIT: dict[str, str] = {"ttft": "ms", "tpot": "ms a token", "pages": "pages a second"}
_CURVE = 40
"""Points of the curve over image tokens."""
_NEEDS = {
    "stage": Column("stage", stages.row_name, left=True),
    "flops": Column("FLOPs", "FLOP"),
    "bytes": Column("has to move", "B"),
    "flops_per_s": Column("compute rate", "FLOP/s"),
    "bytes_per_s": Column("bandwidth", "B/s"),
}
_DEVICES = {
    "hardware": Column("device"),
    "least_s": Column(
        "least time", "s", "The sum of the stages' bounds: no code takes less on this device."
    ),
    "share": Column(
        "of its limit", "share",
        "The least time over the target's. Above 100 % the device cannot reach it.",
    ),
    "peak_share": Column("of peak", "share"),
    "bandwidth_share": Column("of bandwidth", "share"),
    "reaches": Column("reaches it"),
}  # fmt: skip
_REACHED = {
    "run": Column("run"),
    "backend": Column("backend"),
    "device": Column("device"),
    "grid": Column("tiles"),
    "seconds": Column("took", "s"),
    "flops_per_s": Column("compute rate", "FLOP/s"),
    "bytes_per_s": Column("bandwidth", "B/s"),
}


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """The target, the answer in a sentence, its curve, its tables."""
    left, right = st.columns([3.5, 1.5], vertical_alignment="bottom")
    left.segmented_control(
        "Target", TARGETS, required=True, key=key("target"), width="stretch", format_func=_WORDS.__getitem__
    )
    target = cast(Target, text("target"))
    number_input(right, _UNIT[target], target)
    wanted = float(value(target) or 0)
    try:
        needed = requirements(selection.config, selection.workload, target, wanted, selection.policy)
    except TargetError:
        show_error(f"The target needs a positive number of {_UNIT[target]}.")
        return
    of_runs = _reached(selection, target)
    st.markdown(f"**{plain(_sentence(selection, needed, of_runs))}**")
    needs, devices = frames.needs(needed), frames.devices(needed)
    figure.head(
        "Compute and bandwidth that the target takes; stages share its time, so their rates add up.",
        reproduce=selection.command("require", f"--{target}", f"{wanted:g}"),
        needs=needs, devices=devices, reached=of_runs,
    )  # fmt: skip
    figure.plot(
        _curve(selection, needed, of_runs), f"required {target}",
        "The rate that the target takes over image tokens",
    )  # fmt: skip
    table.draw(needs, _NEEDS)
    table.draw(devices, _DEVICES)
    if len(of_runs):
        table.draw(of_runs[::-1], _REACHED)


def _sentence(selection: Selection, needed: Requirements, of_runs: pd.DataFrame) -> str:
    words = sentence(selection.workload, needed)
    here = [reach for reach in needed.devices if reach.hardware == selection.hardware]
    if here and here[0].possible and needed.first_possible is not here[0]:
        words += f", {here[0].hardware.name} at {percent(100 * here[0].share)}"
    if len(of_runs):
        words += f"; {best_words(of_runs, selection.workload, needed.target)}"
    return f"{words}."


def _reached(selection: Selection, target: Target) -> pd.DataFrame:
    """`reached` with the runs' names; empty where the history cannot be asked."""
    try:
        history, of = resources.history(), (selection.config, selection.preset, target, selection.policy)
        return resources.held("flops reached", history.state, of, lambda: _named(history, *of))
    except (DsocrError, duckdb.Error):
        return pd.DataFrame()


def _named(
    history: History, config: ModelConfig, preset: str, target: Target, policy: Policy
) -> pd.DataFrame:
    found = reached(history, config, preset, target, policy)
    runs = history.runs()
    names = chart_names(runs[runs["run_id"].isin(found["run_id"])])
    return found.assign(run=[" · ".join(names.get(run, (run,))) for run in found["run_id"]])


def _curve(selection: Selection, needed: Requirements, of_runs: pd.DataFrame) -> Figure:
    """The rate over image tokens, and what runs reached: bandwidth for a token, else FLOP/s."""
    rate, unit = ("bytes_per_s", "B/s") if needed.target == "tpot" else ("flops_per_s", "FLOP/s")
    chosen = selection.workload.image_tokens
    tokens, rates = [], []
    for x, work, _ in of_axis(
        selection.workload, "image-tokens", spread(273, max(2 * chosen, 3_000), _CURVE)
    ):
        costs = work_of(selection.config, work, needed.target, selection.policy).values()
        took = (cost.compulsory_bytes if needed.target == "tpot" else cost.cost.flops for cost in costs)
        tokens.append(x)
        rates.append(sum(took) / needed.seconds)
    series = [Series("needed", tokens, rates, "#4C6EF5")]
    if len(of_runs) and len(there := of_runs[of_runs[rate].notna()]):
        marks = [mark(run) for run in there["run"]]
        x, y = there["image_tokens"], there[rate]
        series.append(Series("reached by runs", x, y, "#C0362C", symbol="diamond", texts=marks))
    at = (chosen, f"this page: {chosen:,}")
    return plots.lines(series, "positions of the image in the prompt", unit, height=320, at=at)

"""Timing's view Kernels: those of one run, or of two side by side."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analytic_model.hardware import card_named
from dsocr_core.base.formatting import plural
from dsocr_core.runs.kernels import SHARES, KernelPairs, kernel_names, kernel_pairs, profile_of
from dsocr_core.runs.labels import has_value, in_order, short_names
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.stages import stage_name
from pages.widgets.shared.table import Column
from pages.widgets.shared.url_state import go
from pages.widgets.timing import charts, profile
from pages.widgets.timing.address import STATE, bound, put, value
from pages.widgets.timing.sidebar import RunSelection

_TABLE = "timing kernel pairs"
_MOST = 200
"""Kernels of one run's sums: what is below takes no time."""
_KERNELS = {
    "stage": Column("stage"),
    "short": Column("kernel", width=220),
    "share": Column("share", "bar", "Of the GPU time of the stage."),
    "total_s": Column("total", "s"),
    "instances": Column("calls", "count"),
    **{f"{name}_s": Column(head, "s") for name, head in
       (("avg", "mean"), ("med", "median"), ("min", "least"), ("max", "most"))},
    "name": Column("full name"),
}  # fmt: skip
_PAIR = {
    "found": Column("found"),
    "stage": Column("stage"),
    "name": Column("kernel", width=220),
    "change_s": Column("B − A", "+s", "Time of B less time of A, over all launches."),
    **{
        f"{name}_{side}": Column(f"{head} {side.upper()}", unit)
        for name, head, unit in (
            ("each_s", "each", "s"), ("total_s", "total", "s"), ("calls", "calls", "count"),
            *((name, {"sm": "SM", "dram": "DRAM"}.get(name, name), "%") for name in SHARES),
        )
        for side in "ab"
    },
    **{f"launch_{side}": Column(f"launch {side.upper()}", about="Grid x block.") for side in "ab"},
    "kernel": Column("full name"),
}  # fmt: skip
_NO_PROFILES = "Not both commits were profiled on this card: import a profile of each (docs/profiling.md)."


def draw(chosen: RunSelection) -> None:
    """The choice of a run, and of one before it, and their kernels."""
    # Nsight's runs are profiled by nature: that filter does not count here.
    passing = chosen.history.runs(**chosen.filters | {"profiled": None})["run_id"]
    summed, profiled = (set(chosen.history.runs_with(name)) for name in ("kernels", "kernel_launches"))
    runs = chosen.every[chosen.every["run_id"].isin(set(passing) & (summed | profiled))]
    if runs.empty:
        st.info(
            "No run with kernels passes the filters. Import a kernel summary of Nsight Systems or a profile "
            "of Nsight Compute."
        )
        if st.button("Import runs", type="primary", key="timing import"):
            go("runs", importing=True)
        return
    there = [*runs["run_id"]]
    STATE.settle("run", there, there[0])
    STATE.settle("against", there)
    stages = _stages(chosen, [each for each in (value("run"), value("against")) if each])
    if value("part") not in stages:
        put("part", "")
    one, two, three = st.columns([3, 3, 2], vertical_alignment="bottom")
    one.selectbox(
        "A, before", ["", *(each for each in there if each != value("run"))], **bound("against"),
        format_func=({"": "none: B alone"} | chosen.labels).__getitem__,
    )  # fmt: skip
    two.selectbox(
        "B, after", chosen.offered(value("run"), runs=runs), **bound("run"),
        format_func=chosen.labels.__getitem__,
    )  # fmt: skip
    words = {"": "all"} | short_names(stages)
    three.selectbox(
        "Stage", ["", *stages], **bound("part"), format_func=words.__getitem__, disabled=not stages
    )
    run, before = value("run"), value("against")
    if before and before != run:
        _pair(chosen, before, run)
        return
    if run in summed:
        _longest(chosen, run)
    if run in profiled:
        profile.draw(chosen, run, value("part"))


def _stages(chosen: RunSelection, runs: list[str]) -> list[str]:
    longest, _ = chosen.history.query("kernels", run_ids=runs, top=1)
    launches, _ = chosen.history.query("launches", run_ids=runs)
    stages = [frame["stage"].dropna() for frame in (longest, launches) if len(frame)]
    return in_order(pd.concat(stages)) if stages else []


def _longest(chosen: RunSelection, run: str) -> None:
    stage = [value("part")] if value("part") else None
    found, sql = chosen.history.query("kernels", run_ids=[run], stages=stage, top=_MOST)
    figure.head(
        f"{plural(len(found), 'kernel')}, the longest first, by their share of their stage's GPU time.",
        sql=[sql], commands=[chosen.history.record(run).command], kernels=found,
    )  # fmt: skip
    shown = found.assign(
        stage=[stage_name(stage) if has_value(stage) else "all stages" for stage in found["stage"]],
        short=kernel_names(found["name"].tolist()),
        **{f"{name}_s": found[f"{name}_ns"] / 1e9 for name in ("total", "avg", "med", "min", "max")},
    )
    table.draw(shown, _KERNELS)


# --- two runs -------------------------------------------------------------------------------------


def _pair(chosen: RunSelection, a: str, b: str) -> None:
    stage = value("part") or None
    history, of = chosen.history, (a, b, stage)
    found = resources.held(
        "timing kernel pairs", history.state_of_runs, of, lambda: kernel_pairs(history, a, b, stage)
    )
    commands = [history.record(run).command for run in (a, b)]
    figure.head(found.words, sql=found.sql, commands=commands, kernels_compared=found.rows, sides=found.sides)
    if found.rows.empty:
        st.info("Neither run has kernels of this stage.")
        return
    rows = found.rows.head(_MOST)
    rows = rows.assign(
        name=kernel_names(rows["kernel"].tolist()),
        stage=[stage_name(name) if has_value(name) else "all stages" for name in rows["stage"]],
    )
    without = [name for name in _PAIR if name in rows and rows[name].isna().all()]
    table.draw(
        rows.drop(columns=without), _PAIR, "–", key=_TABLE, selection_mode="single-row", on_select="rerun"
    )
    marked = st.session_state[_TABLE]["selection"]["rows"]
    _roof(chosen, found, rows.iloc[marked] if marked else rows, b)


def _roof(chosen: RunSelection, found: KernelPairs, rows: pd.DataFrame, run: str) -> None:
    """The kernels of both under the roof of B's card where their operations were counted."""
    sides = found.sides[found.sides["kernel"].isin({*rows["kernel"]}) & found.sides["class"].notna()]
    if sides.empty:
        return
    # A's open marks are drawn last: B's would cover them.
    sides = sides.sort_values("side", ascending=False).assign(duration_s=sides["total_s"])
    sides["share"] = sides["duration_s"] / sides.groupby("side")["duration_s"].transform("sum")
    counted = sides[sides["flops"].notna() & sides["bytes"].notna() & (sides["duration_s"] > 0)]
    gpu = chosen.facts[run]["gpu"]
    device = card_named(gpu if isinstance(gpu, str) else None)
    if device is not None and charts.roofs(counted, device):
        of = f"{plural(len(rows), 'kernel')}: A open, B filled"
        st.caption(f"{of}, under the roof of {device.name}; each as large as its part of the time.")
        figure.plot(charts.kernel_roofline(counted, device), "kernel roofline", f"Roofline, {of}")


def button(chosen: RunSelection, a: str, b: str, stage: str) -> None:
    """From two timed runs to the kernels of their commits, where both were profiled."""
    found = [profile_of(chosen.history, chosen.every, run) for run in (a, b)]
    there = all(found) and found[0] != found[1]
    st.button(
        f"Kernels of {stage_name(stage)}", icon=":material/memory:", key="timing kernels", disabled=not there,
        on_click=_open, args=(*found, stage),
        help="Both commits' kernels side by side." if there else _NO_PROFILES,
    )  # fmt: skip


def _open(before: str, run: str, stage: str) -> None:
    """A callback: the kernels of two runs."""
    for name, new in (("against", before), ("run", run), ("part", stage), ("view", "Kernels")):
        put(name, new)

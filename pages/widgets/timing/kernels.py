"""Timing's view Kernels: those of one run, or of two side by side."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analytic_model.cards import card_named
from dsocr_core.base.formatting import plural
from dsocr_core.runs import timings
from dsocr_core.runs.kernel_names import kernel_names
from dsocr_core.runs.kernel_pairs import FIGURES, KernelPairs, kernel_pairs, profile_of
from dsocr_core.runs.labels import has_value, short_names
from pages.widgets.shared import bars, figure, navigation, resources, table
from pages.widgets.shared.stages import stage_name
from pages.widgets.shared.table import Column
from pages.widgets.timing import charts, profile, profile_charts, tables
from pages.widgets.timing.address import STATE, key, put, value
from pages.widgets.timing.sidebar import Shown

_TABLE = "timing kernel pairs"
_HEADS = {"sm": "SM", "memory": "memory", "dram": "DRAM", "occupancy": "occupancy"}
_COLUMNS = {
    "found": Column("found"),
    "stage": Column("stage"),
    "name": Column("kernel"),
    "change_s": Column("B − A", "+s", "Time of B less time of A, over all launches."),
    **{
        f"{name}_{side}": Column(f"{head} {side.upper()}", unit)
        for name, head, unit in (
            ("each_s", "each", "s"), ("total_s", "total", "s"), ("calls", "calls", "count")
        )
        for side in "ab"
    },
    **{f"{name}_{side}": Column(f"{_HEADS[name]} {side.upper()}", "%") for name in FIGURES for side in "ab"},
    **{f"launch_{side}": Column(f"launch {side.upper()}", about="Grid x block.") for side in "ab"},
    "kernel": Column("full name"),
}  # fmt: skip


def draw(shown: Shown) -> None:
    """The choice of a run, and of one before it, and their kernels."""
    # Nsight's runs are profiled by nature: that filter does not count here.
    passing = shown.history.runs(**shown.filters | {"profiled": None})["run_id"]
    candidates = shown.every[shown.every["run_id"].isin(set(passing))]
    summed = shown.history.runs_with("kernels")
    profiled = set(shown.history.runs_with("kernel_launches"))
    with_kernels = candidates[candidates["run_id"].isin({*summed, *profiled})]
    if with_kernels.empty:
        st.info(
            "No run with kernels passes the filters. Import a kernel summary of Nsight Systems or a profile "
            "of Nsight Compute."
        )
        if st.button("Import runs", type="primary", key="timing import"):
            navigation.to_import()
        return
    there = [*with_kernels["run_id"]]
    for name, standard in (("run", there[0]), ("against", "")):
        if STATE.missing(name, {*there, ""}):
            STATE.say_missing(name, "run with kernels:")
            return
        if value(name) not in there:
            put(name, standard)
    run, before = value("run"), value("against")
    first, second = st.columns(2, vertical_alignment="bottom")
    offered = shown.offered(run, runs=with_kernels)
    first.selectbox(
        "A, before", ["", *(each for each in there if each != run)], key=key("against"),
        format_func=({"": "none: B alone"} | shown.labels).__getitem__,
    )  # fmt: skip
    second.selectbox("B, after", offered, key=key("run"), format_func=shown.labels.__getitem__)
    runs = [run, before] if before and before != run else [run]
    if run in summed or len(runs) > 1:
        _controls(shown, runs)
    if len(runs) > 1:
        _pair(shown, before, run)
        return
    if run in summed:
        _longest(shown, run)
    if run in profiled:
        profile.draw(shown, run)


def _controls(shown: Shown, runs: list[str]) -> None:
    longest, _ = shown.history.query("kernels", run_ids=runs, top=1)
    if not {*runs} <= {*longest["run_id"]}:  # profiles that no sums came with
        launches, _ = shown.history.query("launches", run_ids=runs)
        longest = pd.concat([longest, launches])
    stages = timings.in_order(longest["stage"].dropna())
    if value("part") not in ("", *stages):
        put("part", "")
    words = {"": "all"} | short_names(stages)
    left, right = st.columns(2, vertical_alignment="bottom")
    left.selectbox(
        "Stage", ["", *stages], key=key("part"), format_func=words.__getitem__, disabled=not stages
    )
    right.slider("Longest kernels" if len(runs) == 1 else "Largest changes", 5, 50, key=key("top"))


def _longest(shown: Shown, run: str) -> None:
    stage = [value("part")] if value("part") else None
    found, sql = shown.history.query("kernels", run_ids=[run], stages=stage, top=value("top"))
    covered = found.groupby("stage", dropna=False)["share"].sum()
    words_of = ", ".join(
        f"{stage_name(name) if isinstance(name, str) else 'all stages'} {100 * share:.0f} %"
        for name, share in covered.items()
    )
    caption = f"The longest kernels by their share of the stage's GPU time; together: {words_of}."
    figure.head(caption, sql=[sql], commands=shown.commands(run), kernels=found)
    bars.draw(charts.kernel_bars(found), caption)
    table.draw(tables.told_kernels(found), tables.KERNELS)


# --- two runs -------------------------------------------------------------------------------------


def _pair(shown: Shown, a: str, b: str) -> None:
    stage = value("part") or None
    history, of = shown.history, (a, b, stage)
    found = resources.held(
        "timing kernel pairs", history.state_of_runs, of, lambda: kernel_pairs(history, a, b, stage)
    )
    figure.head(
        found.words, sql=found.sql, commands=shown.commands(a, b), kernels_compared=found.rows,
        sides=found.sides,
    )  # fmt: skip
    if found.rows.empty:
        st.info("Neither run has kernels of this stage.")
        return
    rows = found.rows.head(value("top"))
    rows = rows.assign(
        name=kernel_names(rows["kernel"].tolist()),
        stage=[stage_name(name) if has_value(name) else "all stages" for name in rows["stage"]],
    )
    bars.draw(charts.kernel_pair_bars(rows, found.by_call), found.words)
    without = [name for name in _COLUMNS if name in rows and rows[name].isna().all()]
    table.draw(
        rows.drop(columns=without), _COLUMNS, "–", key=_TABLE, selection_mode="single-row", on_select="rerun"
    )
    chosen_rows = st.session_state[_TABLE]["selection"]["rows"]
    _roof(shown, found, rows.iloc[chosen_rows] if chosen_rows else rows, b)


def _roof(shown: Shown, found: KernelPairs, rows: pd.DataFrame, run: str) -> None:
    """The kernels of both under the roof of B's card where their operations were counted."""
    sides = found.sides[found.sides["kernel"].isin({*rows["kernel"]}) & found.sides["class"].notna()]
    if sides.empty:
        return
    # A's open marks are drawn last: B's would cover them.
    sides = sides.sort_values("side", ascending=False).assign(duration_s=sides["total_s"])
    sides["share"] = sides["duration_s"] / sides.groupby("side")["duration_s"].transform("sum")
    counted = sides[sides["flops"].notna() & sides["bytes"].notna() & (sides["duration_s"] > 0)]
    gpu = shown.every.set_index("run_id")["gpu"].get(run)
    device = card_named(gpu if isinstance(gpu, str) else None)
    if device is not None and profile_charts.roofs(counted, device):
        of = f"{plural(len(rows), 'kernel')}: A open, B filled"
        st.caption(f"{of}, under the roof of {device.name}; each as large as its part of the time.")
        figure.plot(profile_charts.kernel_roofline(counted, device), "kernel roofline", f"Roofline, {of}")


def button(shown: Shown, a: str, b: str, stage: str) -> None:
    """From two timed runs to the kernels of their commits, where both were profiled."""
    found = [profile_of(shown.history, shown.every, run) for run in (a, b)]
    there = all(found) and found[0] != found[1]
    st.button(
        f"Kernels of {stage_name(stage)}", icon=":material/memory:", key="timing kernels", disabled=not there,
        on_click=_open, args=(*found, stage),
        help="Both commits' kernels side by side." if there else _NO_PROFILES,
    )  # fmt: skip


_NO_PROFILES = "Not both commits were profiled on this card: import a profile of each (docs/profiling.md)."


def _open(before: str, run: str, stage: str) -> None:
    """A callback: the kernels of two runs."""
    for name, given in (("against", before), ("run", run), ("part", stage), ("view", "Kernels")):
        put(name, given)

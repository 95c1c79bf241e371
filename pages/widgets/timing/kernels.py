"""Timing's view Kernels: those of one run, summed or profiled, or of two runs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from analytic_model.hardware import Hardware, card_named
from dsocr_core.base.formatting import amount, percent, plural
from dsocr_core.runs.kernels import (
    CLASS_RULE,
    SHARES,
    by_kernel,
    device_name,
    kernel_names,
    kernel_pairs,
    profile_of,
    profile_rows,
)  # fmt: skip
from dsocr_core.runs.labels import has_value, in_order, short_names
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.labels import stage_name
from pages.widgets.shared.table import Column
from pages.widgets.shared.url_state import go
from pages.widgets.timing import charts
from pages.widgets.timing.address import STATE, bound, put, value
from pages.widgets.timing.sidebar import RunSelection

_MOST, _MOST_DRAWN = 200, 400
"""Kernels of one run's sums, and under its roof: what is below takes no time."""
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
    "kernel": Column("full name"),
}  # fmt: skip
PROFILE = {
    "stage": Column("stage"),
    "name": Column("kernel"),
    "calls": Column(
        "launches", "count", "With several, times are summed; other figures are means, weighted by time."
    ),
    "class": Column("class", about=f"{CLASS_RULE[0].upper()}{CLASS_RULE[1:]}."),
    "duration_s": Column("time", "s"),
    "share": Column("share", "share", "Of the time of the launches below, each profiled alone."),
    "sm": Column("SM", "%", "Speed of Light: share of the SMs' peak."),
    **{name: Column(head, "%") for name, head in (("dram", "DRAM"), ("l2", "L2"))},
    "occupancy": Column("occupancy", "%", "Achieved, of the most warps an SM can hold."),
    "tensor_pipe": Column("tensor cores", "%", "Share of cycles in which they worked, of peak."),
    "limiter": Column("limited by", about="What allows the fewest blocks on an SM."),
    "flops": Column(
        "FLOPs", "FLOP",
        "Counted: on the tensor cores, and float32 additions and multiplications outside them.",
    ),
    "kernel": Column("full name"),
}  # fmt: skip
_NO_PROFILES = "Not both commits were profiled on this card: import a profile of each (docs/profiling.md)."


def draw(chosen: RunSelection) -> None:
    """The choice of a run, and of one before it, and their kernels."""
    # Nsight's runs are profiled by nature: that filter does not count here.
    runs = chosen.with_profiled
    summed, profiled = (set(chosen.history.runs_with(name)) for name in ("kernels", "kernel_launches"))
    runs = runs[runs["run_id"].isin(summed | profiled)]
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
    of = tuple(filter(None, (value("run"), value("against"))))
    stages = resources.cached("kernel stages", chosen.history.state_of_runs, of, lambda: _stages(chosen, of))
    if value("part") not in stages:
        put("part", "")
    one, two, three = st.columns([3, 3, 2], vertical_alignment="bottom")
    before = one.selectbox(
        "A, before", ["", *(each for each in there if each != value("run"))],
        format_func=({"": "none: B alone"} | chosen.labels).__getitem__, **bound("against"),
    )  # fmt: skip
    run = two.selectbox(
        "B, after", chosen.offered(value("run"), runs=runs), format_func=chosen.labels.__getitem__,
        **bound("run"),
    )  # fmt: skip
    words = {"": "all"} | short_names(stages)
    stage = three.selectbox(
        "Stage", ["", *stages], format_func=words.__getitem__, disabled=not stages, **bound("part")
    )
    if before and before != run:
        _pair(chosen, before, run, stage)
        return
    if run in profiled:  # whose table has the sums, too
        _profile(chosen, run, stage)
    else:
        _longest(chosen, run, stage)


def _stages(chosen: RunSelection, runs: tuple[str, ...]) -> list[str]:
    longest, _ = chosen.history.query("kernels", run_ids=[*runs], top=1)
    launches, _ = chosen.history.query("launches", run_ids=[*runs])
    stages = [frame["stage"].dropna() for frame in (longest, launches) if len(frame)]
    return in_order(pd.concat(stages)) if stages else []


def _stage_words(stages: pd.Series) -> list[str]:
    return [stage_name(stage) if has_value(stage) else "all stages" for stage in stages]


def _longest(chosen: RunSelection, run: str, stage: str) -> None:
    found, sql = chosen.history.query("kernels", run_ids=[run], stages=[stage] if stage else None, top=_MOST)
    figure.head(
        f"{plural(len(found), 'kernel')}, the longest first, with their shares of the stage's GPU time.",
        sql=[sql], kernels=found,
    )  # fmt: skip
    times = {f"{name}_s": found[f"{name}_ns"] / 1e9 for name in ("total", "avg", "med", "min", "max")}
    short = kernel_names(found["name"].tolist())
    table.draw(found.assign(stage=_stage_words(found["stage"]), short=short, **times), _KERNELS)


# --- two runs -------------------------------------------------------------------------------------


def _pair(chosen: RunSelection, a: str, b: str, stage: str) -> None:
    history, of = chosen.history, (a, b, stage or None)
    rows, words, sql = resources.cached(
        "timing kernel pairs", history.state_of_runs, of, lambda: kernel_pairs(history, *of)
    )
    figure.head(words, sql=sql, kernels_compared=rows)
    if rows.empty:
        st.info("Neither run has kernels of this stage.")
        return
    rows = rows.head(_MOST)
    rows = rows.assign(name=kernel_names(rows["kernel"].tolist()), stage=_stage_words(rows["stage"]))
    without = [name for name in _PAIR if name in rows and rows[name].isna().all()]
    table.draw(rows.drop(columns=without), _PAIR, "–")


def _counted(rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels whose operations and bytes were counted."""
    return rows[rows["flops"].notna() & rows["bytes"].notna() & (rows["duration_s"] > 0)]


def button(chosen: RunSelection, a: str, b: str, stage: str) -> None:
    """From two timed runs to the kernels of their commits, where both were profiled."""
    found = [profile_of(chosen.history, chosen.every, run) for run in (a, b)]
    there = all(found) and found[0] != found[1]

    def opened() -> None:
        for name, new in zip(("against", "run", "part", "view"), (*found, stage, "Kernels"), strict=True):
            put(name, new)

    st.button(
        f"Kernels of {stage_name(stage)}", icon=":material/memory:", key="timing kernels", disabled=not there,
        on_click=opened, help="Both commits' kernels side by side." if there else _NO_PROFILES,
    )  # fmt: skip


# --- a profile of Nsight Compute ------------------------------------------------------------------


@dataclass(frozen=True)
class _Profile:
    words: str
    rows: pd.DataFrame
    kernels: pd.DataFrame
    sql: list[str]
    device: Hardware | None


def _read(chosen: RunSelection, run: str, stage: str) -> _Profile:
    """The profile of a run, of a stage or ("") of all; the device where a roof of it can be drawn."""
    launches, _ = chosen.history.query("launches", run_ids=[run])
    metrics, sql = chosen.history.query("launch_metrics", run_ids=[run])
    rows = profile_rows(launches, metrics)
    kernels = by_kernel(rows)
    if stage:
        rows, kernels = (each[each["stage"] == stage] for each in (rows, kernels))
    words, counted, gpu = profile_words(rows, kernels), _counted(kernels), chosen.facts[run]["gpu"]
    capabilities = launches["compute_capability"].dropna().unique().tolist()
    name = device_name(metrics) or (gpu if isinstance(gpu, str) else None)
    device = card_named(name, next(iter(capabilities), None)) if len(capabilities) < 2 else None
    if device is None or not charts.roofs(counted, device):
        device = None
        words += " No peaks of its card are known, so no roof is drawn." if len(counted) else ""
    return _Profile(words, rows, kernels, [sql], device)


def _profile(chosen: RunSelection, run: str, stage: str) -> None:
    found = resources.cached(
        "timing profile", chosen.history.state_of_runs, (run, stage), lambda: _read(chosen, run, stage)
    )
    kernels, device = found.kernels, found.device
    figure.head(found.words, sql=found.sql, kernels_profiled=kernels, profile=found.rows)
    # A profile of few sections has not all columns.
    shown = kernels.drop(columns=[name for name in PROFILE if name in kernels and kernels[name].isna().all()])
    shown = shown.assign(
        name=kernel_names(kernels["kernel"].tolist()), stage=kernels["stage"].fillna("not known")
    )
    table.draw(shown, PROFILE)
    if device is not None:  # a chart takes the browser as long as the rest
        figure.opened("Roofline", "timing roof", partial(_roofline, kernels, device))


def _roofline(kernels: pd.DataFrame, device: Hardware) -> None:
    chart = charts.kernel_roofline(_counted(kernels).head(_MOST_DRAWN), device)
    figure.plot(chart, "kernel roofline", f"Kernels under the roofs of {device.name}")


def profile_words(rows: pd.DataFrame, kernels: pd.DataFrame) -> str:
    """Say what was profiled, and the classes by time."""
    spent = rows["duration_s"].sum(min_count=1)
    took = "times not measured" if pd.isna(spent) else amount(spent, "s")
    # Of kernels, as the table has them: launches of one may be of two classes.
    classes = sorted(kernels.groupby("class"), key=lambda of: -of[1]["share"].sum())
    words = ", ".join(_class_words(str(name), part) for name, part in classes) or "no class measured"
    if rows["flops"].isna().all():
        words += ". No operations were counted, so there is no roofline"
    count = f"{plural(len(rows), 'launch', 'launches')}, {plural(len(kernels), 'kernel')}"
    return f"{count}, {took} (each profiled alone): {words}."


def _class_words(name: str, part: pd.DataFrame) -> str:
    """The share of a class in the time, with how busy SMs and DRAM were in it: means over the time."""
    weights = part["duration_s"]
    if weights.isna().any():
        return f"{plural(len(part), 'kernel')} {name} bound"
    sm, dram = (percent((part[of] * weights).sum() / weights.sum()) for of in ("sm", "dram"))
    return f"{percent(100 * part['share'].sum())} of the time {name} bound (SM {sm}, DRAM {dram} of peak)"

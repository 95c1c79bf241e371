"""The tab Requirements of the FLOPs page: what a target takes, which devices and runs reach it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import duckdb
import pandas as pd
import streamlit as st

from analytic_model.report import requirements_sentence
from analytic_model.requirements import (
    TARGETS,
    Need,
    Requirements,
    Target,
    TargetError,
    requirements,
    work_of,
)
from analytic_model.sweep import of_axis, spread
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig, load_config
from dsocr_core.errors import DsocrError
from dsocr_core.history.record import RunRecord
from dsocr_core.history.store import History
from dsocr_core.outside.untrusted import Refused, parse_json, read_bytes
from dsocr_core.settings import PROJECT_ROOT
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.flops import sweep_charts
from pages.widgets.flops.address import key, text, value
from pages.widgets.flops.bounds import recorded_workload
from pages.widgets.flops.charts import legend_name
from pages.widgets.flops.models import PUBLISHED
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import figure, resources
from pages.widgets.shared.amounts import amount, percent_of
from pages.widgets.shared.formats import NOT_MEASURED
from pages.widgets.shared.labels import chart_names
from pages.widgets.shared.messages import plain, show_error

_WORDS: dict[str, str] = {
    "ttft": "Time to first token", "tpot": "Time per output token", "pages": "Pages a second",
}  # fmt: skip
_UNIT: dict[str, str] = {"ttft": "ms", "tpot": "ms a token", "pages": "pages a second"}
_MOST_RUNS = 30
"""Newest runs that are asked what they reached."""
_CURVE = 40
"""Points of the curve over image tokens."""


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """The target, the answer in a sentence, its curve, its tables."""
    left, right = st.columns([3.5, 1.5], vertical_alignment="bottom")
    left.segmented_control(
        "Target", TARGETS, required=True, key=key("target"), width="stretch", format_func=_WORDS.__getitem__
    )
    target = cast(Target, text("target"))
    right.number_input(_UNIT[target], min_value=0.0, key=key(target), format="%g")
    try:
        needed = requirements(
            selection.config, selection.workload, target, float(value(target) or 0), selection.policy
        )
    except TargetError:
        show_error(f"The target needs a positive number of {_UNIT[target]}.")
        return
    reached = _reached(selection, target)
    st.markdown(f"**{plain(_sentence(selection, needed, reached))}**")
    stages, devices = stage_frame(needed), device_frame(needed)
    figure.head(
        "TFLOP/s and GB/s that the target takes; stages share its time, so their rates add up.",
        reproduce=_command(selection, target), needs=stages, devices=devices, reached=reached,
    )  # fmt: skip
    rate, unit = ("bytes_per_s", "B/s") if target == "tpot" else ("flops_per_s", "FLOP/s")
    curve = curve_frame(selection, target, needed.seconds)
    figure.plot(
        sweep_charts.required(
            curve, rate, unit, selection.workload.image_tokens, reached[reached[rate].notna()]
        ),
        f"required {target}",
        "The rate that the target takes over image tokens",
    )
    figure.table(_shown_stages(stages), left=("stage",))
    figure.table(_shown_devices(devices), left=("device", "reaches it"), about=_ABOUT)
    if len(reached):
        figure.table(_shown_reached(reached), left=("run", "backend", "device", "tiles"))


_ABOUT = {
    "least time": "The sum of the stages' bounds: no code takes less on this device.",
    "of its limit": "The least time over the target's. Above 100 % the device cannot reach it.",
}


def _sentence(selection: Selection, needed: Requirements, reached: pd.DataFrame) -> str:
    words = requirements_sentence(selection.workload, needed)
    here = [reach for reach in needed.devices if reach.hardware == selection.hardware]
    if here and here[0].possible and needed.first_possible is not here[0]:
        words += f", {here[0].hardware.name} at {percent_of(100 * here[0].share)}"
    if len(reached):
        words += f"; {best_words(selection, needed.target, reached)}"
    return f"{words}."


def best_words(selection: Selection, target: Target, reached: pd.DataFrame) -> str:
    """The best run on a page of this grid, else of the one nearest to it, which is named.

    Of pages read together, which share weights and time, what they reached stands beside it.
    """
    together = reached[reached["together"]]
    reached = reached[~reached["together"]] if len(together) < len(reached) else reached
    words = _best_of(selection, target, reached)
    if target == "pages" and 0 < len(together) < len(reached) + len(together):
        words += f"; {_best_of(selection, target, together)}"
    return words


def _best_of(selection: Selection, target: Target, reached: pd.DataFrame) -> str:
    columns, rows = selection.workload.grid
    grid = f"{columns} x {rows}"
    same = reached[reached["grid"] == grid]
    if same.empty:
        off = (reached["image_tokens"] - selection.workload.image_tokens).abs()
        same = reached[off == off.min()]
    best = same.sort_values("seconds").iloc[0]
    did = (
        f"reached {1 / best['seconds']:.3g} pages a second"
        if target == "pages"
        else f"needed {amount(best['seconds'], 's')}"
    )
    where = "" if best["grid"] == grid else f" at {best['grid']} tiles"
    return f"{best['backend']} {did}{where} on {best['device']} ({best['run']})"


def stage_frame(needed: Requirements) -> pd.DataFrame:
    """A row a stage and one for all: stage, flops, bytes, flops_per_s, bytes_per_s."""

    def row(name: str, need: Need) -> dict[str, object]:
        return {
            "stage": name, "flops": need.flops, "bytes": need.bytes, "flops_per_s": need.flops_per_s,
            "bytes_per_s": need.bytes_per_s,
        }  # fmt: skip

    rows = [row(legend_name(stage), need) for stage, need in needed.stages.items()]
    return pd.DataFrame([*rows, row("all", needed.total)])


def device_frame(needed: Requirements) -> pd.DataFrame:
    """A row a device: hardware, least_s, share, peak_share, bandwidth_share, reaches."""
    return pd.DataFrame(
        [
            {"hardware": reach.hardware.name, "least_s": reach.least_ms / 1e3, "share": reach.share,
             "peak_share": reach.peak_share, "bandwidth_share": reach.bandwidth_share,
             "reaches": reach.possible}
            for reach in needed.devices
        ]
    )  # fmt: skip


def curve_frame(selection: Selection, target: Target, seconds: float) -> pd.DataFrame:
    """The rates over image tokens: image_tokens, flops_per_s, bytes_per_s."""
    end = max(2 * selection.workload.image_tokens, 3_000)
    rows = []
    for tokens, work, _ in of_axis(selection.workload, "image-tokens", spread(273, end, _CURVE)):
        stages = work_of(selection.config, work, target, selection.policy).values()
        rows.append(
            {
                "image_tokens": tokens,
                "flops_per_s": sum(stage.cost.flops for stage in stages) / seconds,
                "bytes_per_s": sum(stage.compulsory_bytes for stage in stages) / seconds,
            }
        )
    return pd.DataFrame(rows)


_REACHED = [
    "run", "backend", "device", "page", "grid", "image_tokens", "together", "seconds", "flops_per_s",
    "bytes_per_s",
]  # fmt: skip
_TOGETHER = "pages together"
"""In the engine of a run whose pages were read so, as `bench` names it."""
_BENCH_LIMIT = 4 * 1024 * 1024
"""Bytes of what `bench` wrote beside a run."""


def _reached(selection: Selection, target: Target) -> pd.DataFrame:
    """What recorded runs of this preset reached: each run's, backend's and grid's median over its pages."""
    empty = pd.DataFrame(columns=_REACHED)
    try:
        history = resources.history()
        # Under a profiler no time is the engine's own.
        runs = history.runs(sources=["dsocr"], profiled=False).head(_MOST_RUNS)
        runs = runs[[same_model(selection.config, history.record(run)) for run in runs["run_id"]]]
        if runs.empty:
            return empty
        pages, _ = history.query("pages", run_ids=runs["run_id"].tolist())
        times, _ = history.query("page_timings", run_ids=runs["run_id"].tolist())
    except (DsocrError, duckdb.Error):
        return empty
    pages = pages[pages[["width", "height", "preset", "prompt_tokens", "new_tokens"]].notna().all(axis=1)]
    pages = pages[pages["preset"] == selection.preset]
    joined = pages.merge(timed(times, target), on=["run_id", "page", "backend"])
    if target == "pages":
        joined = joined.assign(milliseconds=_of_benches(history, joined))
    if joined.empty:
        return empty
    return reached_frame(
        selection, joined, chart_names(runs), runs.set_index("run_id")["gpu"].to_dict(), target
    )


def timed(times: pd.DataFrame, target: Target) -> pd.DataFrame:
    """What counts of each page's stages: run_id, page, backend, milliseconds. Of a page all that follow."""
    if target == "pages":
        times = times[~times["stage"].isin([stage.value for stage in INSIDE_PREFILL])]
    else:
        stage = Stage.PREFILL.value if target == "ttft" else Stage.DECODE.value
        times = times[times["stage"] == stage]
    keys = ["run_id", "page", "backend"]
    return times.groupby(keys, as_index=False)["milliseconds"].sum()


def _of_benches(history: History, joined: pd.DataFrame) -> pd.Series:
    """A page's time in `joined`; where `bench` timed whole pages, that: pages together share their time."""
    rates: dict[str, dict[str, float]] = {}
    for run in joined["run_id"].unique():
        if "bench.json" in history.file_names(run):
            rates[run] = bench_rates(history.file(run, "bench.json"))
    found = [
        1e3 / rates[run][backend] if backend in rates.get(run, {}) else milliseconds
        for run, backend, milliseconds in joined[["run_id", "backend", "milliseconds"]].itertuples(
            index=False
        )
    ]
    return pd.Series(found, index=joined.index, dtype=float)


def bench_rates(file: Path) -> dict[str, float]:
    """Pages a second of each engine by what `bench` wrote; those that it does not say are left out."""
    try:
        engines = parse_json(read_bytes(file, _BENCH_LIMIT))["engines"]
        rates = {str(engine["name"]): (engine["pages_per_s"] or {}).get("median") for engine in engines}
    except (Refused, LookupError, TypeError, AttributeError):
        return {}
    return {
        name: float(rate) for name, rate in rates.items() if isinstance(rate, (int, float)) and 0 < rate < 1e9
    }


def same_model(config: ModelConfig, record: RunRecord) -> bool:
    """Whether a run read with a model of the selected sizes; not so where its sizes are not known here."""
    checkpoint = Path(str(record.settings.get("checkpoint") or "").removeprefix("random:"))
    if not checkpoint.name:
        return False
    place = PROJECT_ROOT / checkpoint
    if not place.exists() and checkpoint.parts[0] == "published":
        place = PUBLISHED  # as the recordings of a GPU that come with the project name it
    try:
        return load_config(place) == config
    except DsocrError:
        return False


def reached_frame(
    selection: Selection, joined: pd.DataFrame, names: Mapping[str, tuple[str, ...]],
    gpus: Mapping[str, object],
    target: Target,
) -> pd.DataFrame:  # fmt: skip
    """One row a run and backend: the median time, and the rates of the first of its pages at that time."""
    rows = []
    for (run, backend, columns, tile_rows), part in joined.groupby(
        ["run_id", "backend", "grid_columns", "grid_rows"]
    ):
        seconds = part["milliseconds"] / 1e3
        if target == "tpot":
            steps = (part["new_tokens"] - 1).where(part["new_tokens"] > 1)
            seconds = seconds / steps
        middle = float(seconds.median())
        if not middle > 0:
            continue
        first = part.iloc[0]
        work = _workload(first)
        name = " · ".join(names.get(str(run), (str(run),)))
        together = _TOGETHER in name
        stages = work_of(selection.config, work, target, selection.policy).values() if work else ()
        rows.append(
            {
                "run": name,
                "backend": backend,
                "device": gpus.get(str(run)) or "CPU",
                "page": first["page"],
                "grid": f"{int(columns)} x {int(tile_rows)}",
                "image_tokens": work.image_tokens if work else None,
                "together": together,
                "seconds": middle,
                "flops_per_s": sum(stage.cost.flops for stage in stages) / middle,
                # Pages that are read together share what their weights move.
                "bytes_per_s": float("nan")
                if together
                else sum(stage.compulsory_bytes for stage in stages) / middle,
            }
        )
    return pd.DataFrame(rows, columns=_REACHED).dropna(subset=["image_tokens"])


def _workload(page: pd.Series) -> Workload | None:
    size = (int(page["width"]), int(page["height"]))
    try:
        return recorded_workload(
            size, str(page["preset"]), int(page["prompt_tokens"]), int(page["new_tokens"])
        )
    except DsocrError:
        return None


def _shown_stages(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "stage": frame["stage"],
            "FLOPs": [amount(value, "FLOP") for value in frame["flops"]],
            "has to move": [amount(value, "B") for value in frame["bytes"]],
            "compute rate": [amount(value, "FLOP/s") for value in frame["flops_per_s"]],
            "bandwidth": [amount(value, "B/s") for value in frame["bytes_per_s"]],
        }
    )


def _shown_devices(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "device": frame["hardware"],
            "least time": [amount(value, "s") for value in frame["least_s"]],
            "of its limit": [percent_of(100 * value) for value in frame["share"]],
            "of peak": [percent_of(100 * value) for value in frame["peak_share"]],
            "of bandwidth": [percent_of(100 * value) for value in frame["bandwidth_share"]],
            "reaches it": ["yes" if able else "no" for able in frame["reaches"]],
        }
    )


def _shown_reached(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": frame["run"],
            "backend": frame["backend"],
            "device": frame["device"],
            "tiles": frame["grid"],
            "took": [amount(value, "s") for value in frame["seconds"]],
            "compute rate": [amount(value, "FLOP/s") for value in frame["flops_per_s"]],
            "bandwidth": [
                amount(value, "B/s") if value == value else NOT_MEASURED for value in frame["bytes_per_s"]
            ],
        }
    )


def _command(selection: Selection, target: Target) -> str:
    return selection.command("require", f"--{target}", f"{value(target):g}")

"""Kernels that Nsight Compute profiled: their figures and their roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from analytic_model.hardware import Hardware, card_named, with_own_peaks
from dsocr_core.base.formatting import amount, percent, plural
from dsocr_core.runs.kernels import (
    CLASS_RULE,
    by_kernel,
    device_name,
    joined,
    kernel_names,
    known,
    profile_rows,
)  # fmt: skip
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.table import Column
from pages.widgets.timing import charts
from pages.widgets.timing.sidebar import RunSelection

_MOST_DRAWN = 400
_PERCENTS = {
    "SM": ("sm", "Speed of Light: share of the SMs' peak."), "memory": ("memory", ""), "L1": ("l1", ""),
    "L2": ("l2", ""), "DRAM": ("dram", ""),
    "occupancy": ("occupancy", "Achieved, of the most warps an SM can hold."),
    "L1 hits": ("l1_hits", ""), "L2 hits": ("l2_hits", ""),
    "issuing": ("issued", "Share of cycles in which a scheduler had a warp to issue from."),
    "tensor cores": ("tensor_pipe", "Share of cycles in which the tensor cores worked, of peak."),
}  # fmt: skip
_RARE = ("tensor_pipe", "flops", "l1_hits", "l2_hits", "issued", "eligible_warps", "run_share")
"""Columns that a profile of few sections has not."""
COLUMNS = {
    "stage": Column("stage"),
    "name": Column("kernel"),
    "calls": Column(
        "launches", "count", "With several, times are summed; other figures are means, weighted by time."
    ),
    "class": Column("class", about=f"{CLASS_RULE[0].upper()}{CLASS_RULE[1:]}."),
    "duration_s": Column("time", "s"),
    "share": Column("share", "share", "Of the time of the launches below, each profiled alone."),
    "run_share": Column(
        "of the run", "share", "Of the GPU time of the run whose kernel summary has this kernel."
    ),
    **{name: Column(head, "%", about) for head, (name, about) in _PERCENTS.items()},
    "limiter": Column("limited by", about="What allows the fewest blocks on an SM."),
    "most_occupancy": Column("to", "%", "The occupancy that this allows."),
    "eligible_warps": Column("eligible", "", "Warps a scheduler could choose from, each cycle."),
    "flops": Column(
        "FLOPs", "FLOP",
        "Counted: on the tensor cores, and float32 additions and multiplications outside them.",
    ),
    "kernel": Column("full name"),
}  # fmt: skip


@dataclass(frozen=True)
class _Profile:
    rows: pd.DataFrame
    kernels: pd.DataFrame
    capabilities: list[str]
    device: Hardware | None
    sql: list[str]


def _read(chosen: RunSelection, run: str) -> _Profile:
    launches, _ = chosen.history.query("launches", run_ids=[run])
    metrics, sql = chosen.history.query("launch_metrics", run_ids=[run])
    rows = profile_rows(launches, metrics)
    more = joined(chosen.history, rows, run)
    gpu = chosen.facts[run]["gpu"]
    capabilities = launches["compute_capability"].dropna().unique().tolist()
    device = device_of(rows, device_name(metrics) or (gpu if isinstance(gpu, str) else None), capabilities)
    return _Profile(rows, by_kernel(rows), capabilities, device, [sql, *more])


def draw(chosen: RunSelection, run: str, stage: str) -> None:
    """The profile of one run, of a stage or ("") of all."""
    found = resources.held("timing profile", chosen.history.state_of_runs, run, lambda: _read(chosen, run))
    rows, kernels, device = found.rows, found.kernels, found.device
    if stage:
        rows, kernels = (each[each["stage"] == stage] for each in (rows, kernels))
    words = profile_words(rows, kernels, chosen.labels) + roof_words(rows, device, found.capabilities)
    figure.head(
        words,
        sql=found.sql,
        commands=[chosen.history.record(run).command],
        kernels_profiled=kernels,
        profile=rows,
    )
    counted = kernels[kernels["flops"].notna() & kernels["bytes"].notna() & kernels["duration_s"].notna()]
    if device is not None and charts.roofs(counted, device):
        figure.plot(
            charts.kernel_roofline(counted.head(_MOST_DRAWN), device), "kernel roofline",
            f"Kernels under the roofs of {device.name}",
        )  # fmt: skip
    table.draw(told(kernels), COLUMNS)


def told(rows: pd.DataFrame) -> pd.DataFrame:
    """`profile_rows` or `by_kernel` with short names, without the columns that this profile has not."""
    absent = [name for name in _RARE if rows[name].isna().all()]
    return rows.drop(columns=absent).assign(
        name=kernel_names(rows["kernel"].tolist()), stage=rows["stage"].fillna("not known")
    )


def profile_words(rows: pd.DataFrame, kernels: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """Show what was profiled, the classes by time, and whose shares of a run are chosen."""
    words = f"{plural(len(rows), 'launch', 'launches')}, {plural(len(kernels), 'kernel')}, "
    spent = rows["duration_s"].sum(min_count=1)
    words += "times not measured" if pd.isna(spent) else amount(spent, "s")
    words += " (each profiled alone): "
    # Of kernels, as the table has them: launches of one may be of two classes.
    classes = sorted(kernels.groupby("class"), key=lambda of: -of[1]["share"].sum())
    words += ", ".join(_class_words(str(name), part) for name, part in classes) or "no class measured"
    if (other := rows["run"].dropna()).any():
        words += f". Shares of the run are those of {labels.get(other.iloc[0], other.iloc[0])}"
    if rows["flops"].isna().all():
        words += ". No operations were counted, so there is no roofline"
    return f"{words}."


def _class_words(name: str, part: pd.DataFrame) -> str:
    """The share of a class in the time, with how busy SMs and DRAM were in it: means over the time."""
    weights = part["duration_s"]
    if weights.isna().any():
        return f"{plural(len(part), 'kernel')} {name} bound"
    sm, dram = (percent((part[of] * weights).sum() / weights.sum()) for of in ("sm", "dram"))
    return f"{percent(100 * part['share'].sum())} of the time {name} bound (SM {sm}, DRAM {dram} of peak)"


def roof_words(rows: pd.DataFrame, device: Hardware | None, capabilities: list[str]) -> str:
    """Why no roof is drawn over counted operations, as a sentence; nothing where one is."""
    if rows["flops"].isna().all():
        return ""
    if device is not None:
        if charts.roofs(rows, device):
            return ""
        return f" No peak of the units that were used is known of {device.name}, so no roof is drawn."
    of = f" (compute capability {', '.join(capabilities)})" if capabilities else ""
    return f" The card{of} is not known by name and the report states no peaks, so no roof is drawn."


def device_of(rows: pd.DataFrame, gpu: str | None, capabilities: list[str]) -> Hardware | None:
    """The card of the launches by its name and their compute capability, under the report's own peaks."""
    card = card_named(gpu, capabilities[0] if capabilities else None) if len(capabilities) < 2 else None
    clock, memory = rows["frequency"], rows["dram_frequency"]
    peaks = (
        rows["tensor_peak"] * clock,
        rows["ffma_twice_peak"].fillna(2 * rows["ffma_peak"]) * clock,
        rows["dram_peak"] * memory,
    )
    return with_own_peaks(card, *(known(float(peak.median())) for peak in peaks))

"""Kernels that Nsight Compute profiled: their figures, their roofline, and what its rules advise."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from analytic_model.cards import card_named, with_own_peaks
from analytic_model.hardware import Hardware
from dsocr_core.history.kernel_profiles import CLASS_RULE, class_of, figures, matched, nsight_verdict
from dsocr_core.words import amount, percent, plural, significant
from pages.widgets.shared import figure, table
from pages.widgets.shared.table import Column
from pages.widgets.timing import profile_charts, tables
from pages.widgets.timing.address import PARAMETERS, key, value
from pages.widgets.timing.kernel_names import kernel_name, kernel_names
from pages.widgets.timing.sidebar import Shown

_DEVICE_NAME = "device__attribute_display_name"
_ADVICES = 2
_MOST_DRAWN = 400
_PERCENTS = {
    "SM": ("sm", "Speed of Light: share of the SMs' peak."), "memory": ("memory", ""), "L1": ("l1", ""),
    "L2": ("l2", ""), "DRAM": ("dram", ""),
    "occupancy": ("occupancy", "Achieved, of the most warps an SM can hold."),
    "L1 hits": ("l1_hits", ""), "L2 hits": ("l2_hits", ""),
    "issuing": ("issued", "Share of cycles in which a scheduler had a warp to issue from."),
    "tensor cores": ("tensor_pipe", "Share of cycles in which the tensor cores worked, of peak."),
}  # fmt: skip
_RARE = ("tensor_pipe", "flops", "l1_hits", "l2_hits", "issued", "eligible_warps", "run_share", "nsight")
"""Columns that a profile of few sections has not."""
COLUMNS = {
    "stage": Column("stage"),
    "name": Column("kernel"),
    "launches": Column(
        "launches", "count", "With several, times are summed; other figures are means, weighted by time."
    ),
    "class": Column("class", about=f"{CLASS_RULE[0].upper()}{CLASS_RULE[1:]}."),
    "nsight": Column("Nsight says", about="The conclusion of Nsight Compute's own bottleneck rule."),
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


def draw(shown: Shown, run: str) -> None:
    """The profile of one run."""
    launches, _ = shown.history.query("launches", run_ids=[run])
    metrics, sql = shown.history.query("launch_metrics", run_ids=[run])
    rules, rules_sql = shown.history.query("launch_rules", run_ids=[run])
    rows = profile_rows(launches, metrics)
    joined = _joined(shown, rows, run)
    gpu = shown.every.set_index("run_id")["gpu"].get(run)
    rows["nsight"] = nsight_says(rows, rules)
    capabilities = launches["compute_capability"].dropna().unique().tolist()
    device = device_of(rows, _device_name(metrics) or (gpu if isinstance(gpu, str) else None), capabilities)
    kernels = by_kernel(rows)
    words = profile_words(rows, kernels, shown.labels) + roof_words(rows, device, capabilities)
    figure.head(
        words, sql=[sql, rules_sql, *joined],
        commands=shown.commands(run), kernels_profiled=kernels, profile=rows, rules=rules,
    )  # fmt: skip
    for text in advice(rows, rules):
        st.html(text)
    with st.container(horizontal=True):
        if len(kernels) < len(rows):
            _choice("rows", {"kernels": "A row a kernel", "launches": "A row a launch"})
        drawn = kernels if value("rows") == "kernels" else rows
        counted = drawn[drawn["flops"].notna() & drawn["bytes"].notna() & drawn["duration_s"].notna()]
        under_roofs = device is not None and bool(profile_charts.roofs(counted, device))
        if under_roofs:
            _choice("plane", {"roofline": "Roofline", "light": "Speed of Light"})
    # One figure at a time: each takes a browser a quarter of a second.
    if under_roofs and device is not None and value("plane") == "roofline":
        figure.plot(
            profile_charts.kernel_roofline(counted.head(_MOST_DRAWN), device), "kernel roofline",
            f"Kernels under the roofs of {device.name}",
        )  # fmt: skip
    else:
        figure.plot(
            profile_charts.speed_of_light(drawn.head(_MOST_DRAWN)), "speed of light", "SM over DRAM, of peak"
        )
    table.draw(told(drawn), COLUMNS)


def told(rows: pd.DataFrame) -> pd.DataFrame:
    """`profile_rows` or `by_kernel` with short names, without the columns that this profile has not."""
    absent = [name for name in _RARE if rows[name].isna().all()]
    return rows.drop(columns=absent).assign(
        name=kernel_names(rows["kernel"].tolist()), stage=rows["stage"].fillna("not known")
    )


def _choice(name: str, words: Mapping[str, str]) -> None:
    st.segmented_control(
        name, PARAMETERS[name].choices, required=True, key=key(name), label_visibility="collapsed",
        format_func=words.__getitem__,
    )  # fmt: skip


def profile_words(rows: pd.DataFrame, kernels: pd.DataFrame, labels: Mapping[str, str]) -> str:
    """What was profiled, the classes by time, and whose shares of a run are shown."""
    words = f"{plural(len(rows), 'launch', 'launches')} of {plural(len(kernels), 'kernel')} under Nsight "
    words += "Compute, each alone, "
    spent = rows["duration_s"].sum(min_count=1)
    words += "times not measured: " if pd.isna(spent) else f"{amount(spent, 's')} in all: "
    classes = sorted(rows.groupby("class"), key=lambda of: -of[1]["share"].sum())
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
        return f"{plural(len(part), 'launch', 'launches')} {name} bound"
    sm, dram = (percent((part[of] * weights).sum() / weights.sum()) for of in ("sm", "dram"))
    return f"{percent(100 * part['share'].sum())} of the time {name} bound (SM {sm}, DRAM {dram} of peak)"


def roof_words(rows: pd.DataFrame, device: Hardware | None, capabilities: list[str]) -> str:
    """Why no roof is drawn over counted operations, as a sentence; nothing where one is."""
    if rows["flops"].isna().all():
        return ""
    if device is not None:
        if profile_charts.roofs(rows, device):
            return ""
        return f" No peak of the units that were used is known of {device.name}, so no roof is drawn."
    of = f" (compute capability {', '.join(capabilities)})" if capabilities else ""
    return f" The card{of} is not known by name and the report states no peaks, so no roof is drawn."


def nsight_says(rows: pd.DataFrame, rules: pd.DataFrame) -> list[str | None]:
    """For each launch the conclusion of Nsight's own bottleneck rule; None where it gave none."""
    said = {
        number: verdict
        for number, rule, text in zip(rules["number"], rules["rule"], rules["text"], strict=True)
        if (verdict := nsight_verdict(str(rule), str(text))) is not None
    }
    return [said.get(number) for number in rows["number"]]


def _device_name(metrics: pd.DataFrame) -> str | None:
    """The card's name, where all launches that have one have the same."""
    if "text" not in metrics:
        return None
    names = metrics.loc[metrics["metric"] == _DEVICE_NAME, "text"].dropna().unique()
    return str(names[0]) if len(names) == 1 else None


def by_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    """`profile_rows` with a row a kernel and stage, in the order of their time; `launches` counts them.

    Times, FLOPs, bytes and shares are sums; the other figures are means over the time; the class follows
    from those by the same rule.
    """
    found = []
    summed = ["duration_s", "flops", "tensor_flops", "bytes", "bytes_read", "bytes_written", "share"]
    means = [name for name in figures([]) if name not in (*summed, "limiter", "class")]
    for (kernel, stage), part in rows.groupby(["kernel", rows["stage"].fillna("")], sort=False):
        weights = part["duration_s"].fillna(part["duration_s"].mean()).fillna(1.0).to_numpy()
        row = {
            "number": part["number"].iloc[0], "kernel": kernel, "stage": stage or None, "launches": len(part),
            # The summary's share is that of all launches of a kernel.
            "run_share": part["run_share"].max(), "run": part["run"].iloc[0],
            "limiter": next(iter(part["limiter"].dropna().mode()), None),
            "nsight": next(iter(part["nsight"].dropna().mode()), None),
        }  # fmt: skip
        row |= {name: part[name].sum(min_count=len(part)) for name in summed}
        values = part[means].to_numpy(float)  # (launches, figures)
        there = ~np.isnan(values)
        over = (weights[:, None] * there).sum(axis=0)
        products = np.where(there, values, 0.0) * weights[:, None]
        row |= {
            name: total / weight if weight else float("nan")
            for name, total, weight in zip(means, products.sum(axis=0), over, strict=True)
        }
        row["class"] = class_of({name: _or_none(row[name]) for name in ("sm", "dram", "memory")})
        found.append(row)
    return pd.DataFrame(found).sort_values("share", ascending=False, kind="stable", ignore_index=True)


def _or_none(value: float) -> float | None:
    return None if value != value else value


def profile_rows(launches: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a launch: number, kernel, stage, its `figures`, share of the time of all, run_share, run."""
    of_launch: dict[int, list[dict[str, Any]]] = {}
    columns = ("number", "metric", "value", "unit")
    # As lists: cutting a frame into hundreds of launches takes longer than all that is read of them.
    for number, metric, measure, unit in zip(*(metrics[name].tolist() for name in columns), strict=True):
        of_launch.setdefault(number, []).append({"metric": metric, "value": measure, "unit": unit})
    measured = {number: figures(found) for number, found in of_launch.items()}
    empty = figures([])
    rows = pd.DataFrame(
        [
            {"number": row["number"], "kernel": row["kernel"], "stage": row["stage"]}
            | measured.get(row["number"], empty)
            for row in launches.to_dict("records")
        ]
    )
    numbers = [name for name in empty if name not in ("limiter", "class")]
    rows[numbers] = rows[numbers].astype(float)
    rows["share"] = rows["duration_s"] / rows["duration_s"].sum(min_count=1)
    return rows.assign(run_share=float("nan"), run=None, nsight=None)


def _joined(shown: Shown, rows: pd.DataFrame, run: str) -> list[str]:
    """Fill in each kernel's share and stage from the summary that has most of the kernels."""
    runs = [other for other in shown.history.runs_with("kernels") if other != run][:20]
    if not runs:
        return []
    summed, sql = shown.history.query("kernels", run_ids=runs, top=100_000)
    best: tuple[int, str, list[int | None]] = (0, "", [])
    kernels = rows["kernel"].tolist()
    for other, part in summed.groupby("run_id", sort=False):
        if part["stage"].notna().any():
            continue  # of one stage only: no shares of a whole run
        places = matched(kernels, part["name"].tolist())
        count = sum(place is not None for place in places)
        if count > best[0]:
            best = (count, str(other), places)
    if 2 * best[0] < len(rows):
        return []
    part = summed[summed["run_id"] == best[1]].reset_index(drop=True)
    rows["run_share"] = [float("nan") if place is None else part["share"][place] for place in best[2]]
    rows["run"] = [None if place is None else best[1] for place in best[2]]
    stages = _stages_by_name(summed)
    names = [None if place is None else part["name"][place] for place in best[2]]
    rows["stage"] = [
        stage if isinstance(stage, str) else stages.get(name)
        for stage, name in zip(rows["stage"], names, strict=True)
    ]
    return [sql]


def _stages_by_name(summed: pd.DataFrame) -> dict[str | None, str]:
    """The one stage, or the stages, whose own summaries have a kernel of that name."""
    staged = summed[summed["stage"].notna()]
    return {str(name): ", ".join(tables.in_order(part["stage"])) for name, part in staged.groupby("name")}


def device_of(rows: pd.DataFrame, gpu: str | None, capabilities: list[str]) -> Hardware | None:
    """The card of the launches by its name and their compute capability, under the report's own peaks."""
    card = card_named(gpu, capabilities[0] if capabilities else None) if len(capabilities) < 2 else None
    clock, memory = rows["frequency"], rows["dram_frequency"]
    peaks = (
        rows["tensor_peak"] * clock,
        rows["ffma_twice_peak"].fillna(2 * rows["ffma_peak"]) * clock,
        rows["dram_peak"] * memory,
    )
    return with_own_peaks(card, *(_or_none(float(peak.median())) for peak in peaks))


def advice(rows: pd.DataFrame, rules: pd.DataFrame) -> list[str]:
    """The two best next things by the rules' own estimate and the launch's share, quoted as HTML."""
    tries = rules[rules["type"].isin(["OPT", "WRN", "Optimization", "Warning"])]
    if tries.empty:
        return []
    # The share of a kernel in the run is that of all its launches.
    count = rows.groupby("kernel")["number"].transform("size")
    weight = (rows["run_share"] / count).fillna(rows["share"]).set_axis(rows["number"])
    gain = tries["speedup_percent"].fillna(0.0) / 100 * tries["number"].map(weight).fillna(0.0)
    gain = gain.groupby([tries["kernel"], tries["rule"]]).transform("sum")
    tries = tries.assign(gain=gain).sort_values(["gain", "speedup_percent"], ascending=False, kind="stable")
    # One a kernel: what a second rule says of it mostly follows from the first.
    names = tries["kernel"].map(kernel_name)
    tries = tries[~names.duplicated()].head(_ADVICES)
    found = []
    for row in tries.to_dict("records"):
        estimate = row["speedup_percent"]
        named = f"{kernel_name(row['kernel'])}, rule {row['rule']}"
        if estimate == estimate and estimate is not None:
            named += (
                f", estimated speedup {significant(float(estimate))} % ({row['speedup_type'] or 'local'})"
            )
        found.append(
            f"<blockquote class='dsocr-quote'><b>{escape(named)}</b><br>{escape(row['text'])}</blockquote>"
        )
    return found

"""Kernels of runs: figures of launches under Nsight Compute, a row a kernel, and two runs side by side.

Profilers spell a kernel's name and its figures in several ways; here each has one name and one unit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dsocr_core.base.formatting import amount, plural, significant
from dsocr_core.runs.history import History

# --- names ----------------------------------------------------------------------------------------

_CASTS = re.compile(r"\((?:bool|int|unsigned|long|char|short|[a-z_]+_t| )+\)")
_UNNAMED = re.compile(r"\(anonymous namespace\)::|(?<!\w)<unnamed>::|\bunnamed>::")
"""Unnamed namespaces, of which Nsight Compute prints some as `unnamed>::`."""
_SPELLING = re.compile(r"\b(?:const|void)\b|\w+>?::|[\s\[\]:]+")
_BRACKETS = re.compile(r"<[^<>()]*>|\([^()]*\)|\[[^\[\]]*\]")
_LONGEST = 4_000


def plain_name(name: str) -> str:
    """A kernel's name as Nsight Systems and Nsight Compute both spell it: no namespaces, casts, spaces."""
    return _SPELLING.sub("", _CASTS.sub("", _UNNAMED.sub("", name)))


def kernel_names(fulls: Sequence[str]) -> list[str]:
    """Base names; where different kernels share one, with template and arguments as in `plain_name`."""
    kernels: dict[str, set[str]] = defaultdict(set)
    for full in fulls:
        kernels[_base_name(full)].add(plain_name(full))
    return [plain_name(full) if len(kernels[_base_name(full)]) > 1 else _base_name(full) for full in fulls]


def _base_name(full: str) -> str:
    """A name without result, namespaces, template and arguments."""
    name, before = _CASTS.sub("", _UNNAMED.sub("", full[:_LONGEST])), ""
    while name != before:
        before, name = name, _BRACKETS.sub("", name)
    return name.strip().rpartition("::")[2].rpartition(" ")[2] or full


# --- figures of a launch --------------------------------------------------------------------------

CLASS_RULE = (
    "as Nsight Compute's rule: memory: a cache or DRAM reaches 60 % of its peak with the SMs no busier; "
    "compute: the SMs reach 60 %; latency: neither does"
)
_BUSY = 60.0
_LIMITS = {"registers": "Registers", "shared memory": "Shared Mem", "warps": "Warps", "blocks": "SM",
           "barriers": "Barriers"}  # fmt: skip
_FIGURES: Mapping[str, tuple[str, ...]] = {
    "duration_s": ("s", "Duration", "gpu__time_duration.sum"),
    "sm": ("%", "Compute (SM) Throughput", "Compute (SM) [%]",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "memory": ("%", "Memory Throughput", "Memory [%]",
               "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
    "l2": ("%", "L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    "dram": ("%", "DRAM Throughput", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
             "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    "bandwidth": ("B/s", "Memory Throughput", "dram__bytes.sum.per_second", "DRAM Bandwidth"),
    "occupancy": ("%", "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "bytes": ("B", "dram__bytes.sum"),
    "bytes_read": ("B", "dram__bytes_read.sum", "dram__bytes_op_read.sum"),
    "bytes_written": ("B", "dram__bytes_write.sum", "dram__bytes_op_write.sum"),
    "frequency": ("Hz", "smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second",
                  "SM Frequency"),
    "cycles": ("", "smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "Elapsed Cycles"),
    "invocations": ("", "Invocations"),
    "tensor_pipe": ("%", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"),
    **{word: ("", f"Block Limit {name}", f"launch__occupancy_limit_{word.replace(' memory', '_mem')}")
       for word, name in _LIMITS.items()},
}  # fmt: skip
"""Each figure: its unit here, and the names that it has on pages and in versions of Nsight Compute."""
_PLACES = {(name, unit): place for place, (unit, name) in enumerate(
    (unit, name) for unit, *names in _FIGURES.values() for name in names)}  # fmt: skip
_OF_PLACES = [figure for figure, (_, *names) in _FIGURES.items() for _ in names]
_OPS = re.compile(
    r"(?:sm__ops_path_(tensor_src_[a-z0-9]+(?:_dst_[a-z0-9]+)?)"
    r"|sm(?:sp)?__sass_thread_inst_executed_(op_[dfh](?:add|mul|fma)_pred_on))\.sum$"
)
"""Additions and multiplications on the tensor cores, each counted (names that go on split these sums), and a
thread's instructions in 64, 32 and 16 bits outside of them, of which a fused one is two FLOPs.
"""
_UNCOUNTED = (
    r"^(?:(sm__inst_executed_pipe_tensor[a-z0-9_]*\.sum)|(.*fma_pred_on[._].*|Predicated-On .FMA .*))$"
)
"""Instructions on the tensor cores, whose FLOPs depend on the card, and fused ones, also by cycle: where some
ran and were not counted, FLOPs are not known.
"""
_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"(cycle/)?([numkKMGT]?)(byte|B|second|sec|s|[hH]z)(?:/(second|s))?")
_BASES = {"b": "B", "s": "s", "h": "Hz"}


def _base(unit: str | None) -> tuple[float, str]:
    """The factor to, and the name of, the unit here of a printed one: s, B, B/s, Hz, % or none."""
    if (match := _UNIT.fullmatch(unit or "")) is None:
        return 1.0, "%" if unit == "%" else ""
    clock, prefix, name, rate = match.groups()
    if clock:
        return 1 / _PREFIX[prefix], "Hz"
    return _PREFIX[prefix], _BASES[name[0].lower()] + "/s" * bool(rate)


def profile_rows(launches: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a launch: number, kernel, stage, figures (NaN is not measured), share of the time of all.

    With them `limiter`, what holds back its occupancy; `tensor_flops`, `flops` (those and float32's) and
    `bytes` of it; and `class`.
    """
    metrics = metrics[metrics["value"] >= 0]
    units = metrics["unit"].astype(object).where(metrics["unit"].notna(), None)
    bases = {unit: _base(unit) for unit in units.unique()}
    # Two metrics of one name in different units lie as "name" and "name (unit)".
    names = [name.removesuffix(f" ({unit})") for name, unit in zip(metrics["metric"], units, strict=True)]
    places = [_PLACES.get((name, bases[unit][1])) for name, unit in zip(names, units, strict=True)]
    found = metrics.assign(value=metrics["value"] * [bases[unit][0] for unit in units], place=places)
    found = found.dropna(subset="place").sort_values("place", kind="stable")
    found["figure"] = [_OF_PLACES[int(place)] for place in found["place"]]
    table = found.drop_duplicates(["number", "figure"]).pivot(
        index="number", columns="figure", values="value"
    )
    rows = table.reindex(index=launches["number"], columns=[*_FIGURES]).astype(float)
    limits = rows[[*_LIMITS]].where(rows[[*_LIMITS]] > 0)
    least = limits.eq(limits.min(axis=1), axis=0).to_numpy()
    rows["limiter"] = [" and ".join(np.array([*_LIMITS])[is_least]) or None for is_least in least]
    rows["duration_s"] = rows["duration_s"].fillna(rows["cycles"] / rows["frequency"])
    rows["bytes"] = rows["bytes"].fillna(rows["bytes_read"] + rows["bytes_written"])
    rows["bytes"] = rows["bytes"].fillna(rows["bandwidth"] * rows["duration_s"])
    rows = rows.join(_flops(metrics)).drop(columns=[*_LIMITS])
    rows = launches[["number", "kernel", "stage"]].merge(rows, "left", "number")
    # A row of `--print-summary` is the mean of its invocations.
    took = rows["duration_s"] * rows["invocations"].fillna(1.0)
    return rows.assign(calls=1.0, share=took / took.sum(min_count=1), **{"class": _classes(rows)})


def _flops(metrics: pd.DataFrame) -> pd.DataFrame:
    """FLOPs of the tensor cores and of all by launch; of none where only a part was counted."""
    found = metrics.join(metrics["metric"].str.extract(_OPS).set_axis(["tensor", "other"], axis=1))
    is_fused = found["other"].str.contains("fma", na=False)
    found["value"] *= np.where(is_fused, 2, 1)
    tensor, other = (
        found.dropna(subset=kind).drop_duplicates(["number", kind]).groupby("number")["value"].sum()
        for kind in ("tensor", "other")
    )
    ran = metrics["metric"].str.extract(_UNCOUNTED).notna().to_numpy().T
    by_tensor, fused = ({*metrics.loc[of & (metrics["value"] > 0), "number"]} for of in ran)
    partly = (by_tensor - {*tensor.index}) | (fused - {*found.loc[is_fused, "number"]})
    flops = tensor.add(other, fill_value=0)
    flops = flops[(flops > 0) & ~flops.index.isin(partly)]
    return pd.DataFrame({"tensor_flops": tensor, "flops": flops})


def _classes(rows: pd.DataFrame) -> np.ndarray:
    """The class by `CLASS_RULE`; None where the SMs' or DRAM's share was not measured."""
    busiest = rows[["memory", "dram"]].max(axis=1)
    unknown = rows[["sm", "dram"]].isna().any(axis=1)
    is_memory = (busiest >= _BUSY) & (busiest >= rows["sm"])
    words: list[Any] = [None, "memory", "compute"]
    return np.select([unknown, is_memory, rows["sm"] >= _BUSY], words, "latency")


# --- launches and kernels of a run ----------------------------------------------------------------

SHARES = ("sm", "memory", "dram", "occupancy")
"""Shares of a peak that stand side by side."""
_SUMMED = ["calls", "duration_s", "flops", "tensor_flops", "bytes", "share"]
_MEANS = [*SHARES, "l2", "tensor_pipe"]


def by_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    """`profile_rows` with a row a kernel and stage, in the order of their time.

    Calls, times, FLOPs, bytes and shares are sums; the other figures are means over the time; the class
    follows from those. A sum of which a part is not known is not known.
    """
    keys = ["kernel", "stage"]
    groups = rows.groupby(keys, sort=False, dropna=False)
    weights = rows["duration_s"].fillna(groups["duration_s"].transform("mean")).fillna(1.0)
    parts = rows[keys].join(rows[_MEANS].mul(weights, axis=0))
    spent = rows[keys].join(rows[_MEANS].notna().mul(weights, axis=0))
    sums = groups[_SUMMED].sum().where(groups[_SUMMED].count().eq(groups.size(), axis=0))
    means = [part.groupby(keys, sort=False, dropna=False).sum(min_count=1) for part in (parts, spent)]
    first = groups[["number", "limiter"]].first()
    found = pd.concat([first, sums, means[0] / means[1]], axis=1).reset_index()
    found["class"] = _classes(found)
    return found.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def device_name(metrics: pd.DataFrame) -> str | None:
    """The card's name, where all launches that have one have the same."""
    names = metrics.loc[metrics["metric"] == "device__attribute_display_name", "text"].dropna().unique()
    return str(names[0]) if len(names) == 1 else None


# --- two runs -------------------------------------------------------------------------------------

BOTH, NEW, GONE = "in both", "new", "gone"
_FOUND = {"both": BOTH, "left_only": GONE, "right_only": NEW}
_OF_SIDE = ["calls", "total_s", "each_s", *SHARES]
_SAME_WORK = (0.95, 1.05)
"""Launches of B over those of A, the median of what both have, that count as the same work."""


def kernel_pairs(
    history: History, a: str, b: str, stage: str | None = None
) -> tuple[pd.DataFrame, str, list[str]]:
    """Match the kernels of two runs by name, stage by stage where both know it; a sentence on them; the SQL.

    A row has found, stage, kernel, and calls, total_s, each_s and SHARES of both sides, and change_s; the
    largest change first. Where the profiles cover different work a change is that of one launch, times A's.
    Sums (Nsight Systems, torch) know no Speed of Light. Raises HistoryError.
    """
    read = [_kernels(history, run) for run in (a, b)]
    sides = [rows for rows, _ in read]
    if not all(side["stage"].notna().all() for side in sides):
        sides = [side.assign(stage=None) for side in sides]
    full = {plain_name(name): name for side in sides for name in side["kernel"]}
    sides = [side.assign(kernel=side["kernel"].map(plain_name)) for side in sides]
    sides = [by_kernel(side).rename(columns={"duration_s": "total_s"}) for side in sides]
    sides = [side.assign(each_s=side["total_s"] / side["calls"].where(side["calls"] > 0)) for side in sides]
    if stage is not None:
        sides = [side[side["stage"] == stage] for side in sides]
    left, right = (side[["stage", "kernel", *_OF_SIDE]] for side in sides)
    rows = left.merge(right, "outer", ["stage", "kernel"], suffixes=("_a", "_b"), indicator="found")
    rows["found"] = rows["found"].astype(object).map(_FOUND)
    rows["kernel"] = rows["kernel"].map(full)
    both = rows["found"] == BOTH
    times = float((rows["calls_b"] / rows["calls_a"])[both].median())
    by_call = times < _SAME_WORK[0] or times > _SAME_WORK[1]
    change = rows["total_s_b"].fillna(0) - rows["total_s_a"].fillna(0)
    if by_call:
        change = change.where(~both, (rows["each_s_b"] - rows["each_s_a"]) * rows["calls_a"])
    rows = rows.assign(change_s=change, last=by_call & ~both, most=-change.abs())
    rows = rows.sort_values(["last", "most", "found"], kind="stable", ignore_index=True)
    counts = rows["found"].value_counts()
    totals = " → ".join(amount(rows[f"total_s_{side}"].sum(), "s") for side in "ab")
    words = (
        f"{plural(int(counts.get(BOTH, 0)), 'kernel')} in both, {counts.get(NEW, 0)} new in B, "
        f"{counts.get(GONE, 0)} gone, by name; {totals} in all."
    )
    if by_call:
        words += (
            f" B has {significant(times)} times the launches of A: the profiles cover different work, so a "
            "change is that of one launch, times A's launches; what is new or gone comes last and may be "
            "what was not profiled."
        )
    shown = ["found", "stage", "kernel", *(f"{name}_{side}" for name in _OF_SIDE for side in "ab")]
    return rows[[*shown, "change_s"]], words, [sql for _, sql in read]


def _kernels(history: History, run: str) -> tuple[pd.DataFrame, str]:
    """Launches of a profile, or sums in their form; the SQL."""
    if run in history.runs_with("kernel_launches"):
        launches, _ = history.query("launches", run_ids=[run])
        metrics, sql = history.query("launch_metrics", run_ids=[run])
        return profile_rows(launches, metrics), sql
    kernels, sql = history.query("kernels", run_ids=[run], top=100_000)
    rows = kernels.rename(columns={"name": "kernel", "instances": "calls"})
    rows = rows.reindex(columns=["kernel", "stage", "number", "limiter", *_MEANS, *_SUMMED])
    rows = rows.assign(duration_s=kernels["total_ns"] / 1e9, share=kernels["total_ns"])
    return rows.astype(dict.fromkeys([*_MEANS, *_SUMMED], float)), sql


_PROFILED = ["git_commit", "gpu", "engine", "preset"]


def profile_of(history: History, runs: pd.DataFrame, run: str) -> str | None:
    """Find the newest run with kernels of a run's commit, card, engine, preset, in `runs` (newest first)."""
    profiled = runs["run_id"].isin({*history.runs_with("kernels"), *history.runs_with("kernel_launches")})
    same = (runs[_PROFILED] == runs.set_index("run_id").loc[run, _PROFILED]).all(axis=1)
    return next(iter(runs.loc[profiled & same, "run_id"]), None)

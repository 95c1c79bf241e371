"""Kernels of runs: figures of launches under Nsight Compute, a row a kernel, and two runs side by side.

Profilers spell a kernel's name and its figures in several ways; here each has one name and one unit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """Base names; where different kernels share one, with its template and arguments, else whole."""
    parts = {full: _parts(full) for full in dict.fromkeys(fulls)}
    shown = {full: full for full in fulls}
    for place in (1, 0):
        kernels: dict[str, set[str]] = defaultdict(set)
        for full, names in parts.items():
            kernels[names[place]].add(plain_name(full))
        shown |= {full: names[place] for full, names in parts.items() if len(kernels[names[place]]) == 1}
    return [shown[full] for full in fulls]


def _parts(full: str) -> tuple[str, str]:
    """A name's base, and the base with what follows it."""
    name = _CASTS.sub("", _UNNAMED.sub("", full[:_LONGEST]))
    outer, before = name, ""
    while outer != before:
        before, outer = outer, _BRACKETS.sub("", outer)
    base = outer.strip().rpartition("::")[2].rpartition(" ")[2]
    found = re.search(rf"(?:^|[\s:]){re.escape(base)}([<(].*)?$", name) if base else None
    return (base, f"{base}{found[1] or ''}") if found else (base or full, full)


# --- figures of a launch --------------------------------------------------------------------------

CLASS_RULE = (
    "as Nsight Compute's rule: memory: a cache or DRAM reaches 60 % of its peak with the SMs no busier; "
    "compute: the SMs reach 60 %; latency: neither does"
)
_BUSY = 60.0

FIGURES: Mapping[str, tuple[str, ...]] = {
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
}  # fmt: skip
"""Each figure: its unit here, and the names that it has on pages and in versions of Nsight Compute."""
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "registers": ("Block Limit Registers", "launch__occupancy_limit_registers"),
    "shared memory": ("Block Limit Shared Mem", "launch__occupancy_limit_shared_mem"),
    "warps": ("Block Limit Warps", "launch__occupancy_limit_warps"),
    "blocks": ("Block Limit SM", "launch__occupancy_limit_blocks"),
    "barriers": ("Block Limit Barriers", "launch__occupancy_limit_barriers"),
}
_RATE = r"(\.per_cycle_elapsed|\.per_second)?"
_TENSOR_OPS = re.compile(rf"(sm__ops_path_tensor_src_[a-z0-9]+(?:_dst_[a-z0-9]+)?)\.sum{_RATE}")
"""Additions and multiplications on the tensor cores, each counted. Names that go on split these sums."""
_FLOAT_OPS = re.compile(
    rf"sm(?:sp)?__sass_thread_inst_executed_(op_[dfh](?:add|mul|fma)_pred_on)\.sum{_RATE}"
)
"""A thread's instructions in 64, 32 and 16 bits, outside the tensor cores: a fused one is two FLOPs."""
_TENSOR_INSTRUCTIONS = re.compile(r"sm__inst_executed_pipe_tensor[a-z0-9_]*\.sum")
"""FLOPs of one depend on the card: where there are some, FLOPs were not counted whole."""
_FUSED = re.compile(r"derived__smsp__.*fma_pred_on_x2|Predicated-On .FMA .*")
"""Fused instructions by cycle, which are not read: alone they too show that not all was counted."""
_PREFIX = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT = re.compile(r"(cycle/)?([numkKMGT]?)(byte|B|second|sec|s|[hH]z)(?:/(second|s))?")
_BASES = {"b": "B", "s": "s", "h": "Hz"}


def in_unit(value: float, unit: str | None, wanted: str) -> float | None:
    """Convert a figure from its printed unit to s, B, B/s, Hz, % or none; None from another."""
    if wanted in ("%", ""):
        return value if (unit == "%") == (wanted == "%") else None
    if (match := _UNIT.fullmatch(unit or "")) is None:
        return None
    clock, prefix, name, rate = match.groups()
    if clock:
        return value / _PREFIX[prefix] if wanted == "Hz" else None
    return value * _PREFIX[prefix] if _BASES[name[0].lower()] + ("/s" if rate else "") == wanted else None


def figures(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one launch from its metrics (metric, value, unit). None is not measured.

    With them `limiter`, what holds back its occupancy; `tensor_flops`, `flops` (those and float32's) and
    `bytes` of it; and `class`.
    """
    found: dict[str, list[tuple[float, str | None]]] = {}
    for metric in metrics:
        value, unit = metric["value"], metric["unit"] if isinstance(metric["unit"], str) else None
        if value is not None and value >= 0:
            # Two metrics of one name in different units lie as "name" and "name (unit)".
            found.setdefault(metric["metric"].removesuffix(f" ({unit})"), []).append((float(value), unit))
    row: dict[str, Any] = {}
    for figure, (wanted, *names) in FIGURES.items():
        values = (in_unit(*each, wanted) for name in names for each in found.get(name, ()))
        row[figure] = next((value for value in values if value is not None), None)
    plain = {name: values[0][0] for name, values in found.items()}
    limits = {
        word: next((plain[name] for name in names if name in plain), 0.0) for word, names in _LIMITS.items()
    }
    least = min(filter(None, limits.values()), default=None)
    row["limiter"] = " and ".join(word for word, value in limits.items() if value == least) or None
    if row["duration_s"] is None and row["cycles"] and row["frequency"]:
        row["duration_s"] = row["cycles"] / row["frequency"]
    row |= _flops(plain, row)
    if row["bytes"] is None and None not in (row["bytes_read"], row["bytes_written"]):
        row["bytes"] = row["bytes_read"] + row["bytes_written"]
    elif row["bytes"] is None and None not in (row["bandwidth"], row["duration_s"]):
        row["bytes"] = row["bandwidth"] * row["duration_s"]
    return row | {"class": class_of(row)}


def _flops(metrics: Mapping[str, float], row: Mapping[str, Any]) -> dict[str, float | None]:
    """FLOPs of the tensor cores and of all; None where nothing was counted, or only what was not used."""
    seconds = row["duration_s"]
    cycles = row["frequency"] * seconds if row["frequency"] and seconds else row["cycles"]
    times = {None: 1.0, ".per_second": seconds, ".per_cycle_elapsed": cycles}
    tensor: dict[str, float] = {}
    others: dict[str, float] = {}
    for name in sorted(metrics, key=len):  # shortest names first: a count goes before a rate
        for pattern, into in ((_TENSOR_OPS, tensor), (_FLOAT_OPS, others)):
            if (match := pattern.fullmatch(name)) and (by := times[match[2]]) is not None:
                into.setdefault(match[1], metrics[name] * by * (2 if "fma_" in match[1] else 1))
    of_tensor = any(value for name, value in metrics.items() if _TENSOR_INSTRUCTIONS.fullmatch(name))
    fused = any(map(_FUSED.fullmatch, metrics)) and not any("fma_" in name for name in others)
    every = sum([*tensor.values(), *others.values()]) or None
    every = None if fused or (of_tensor and not tensor) else every
    return {"tensor_flops": sum(tensor.values()) if tensor else None, "flops": every}


def class_of(row: Mapping[str, Any]) -> str | None:
    """The class by `CLASS_RULE`; None where the SMs' or DRAM's share was not measured."""
    sm, dram, memory = (None if pd.isna(row[name]) else row[name] for name in ("sm", "dram", "memory"))
    if sm is None or dram is None:
        return None
    if (busiest := max(memory or 0.0, dram)) >= _BUSY and busiest >= sm:
        return "memory"
    return "compute" if sm >= _BUSY else "latency"


# --- launches and kernels of a run ----------------------------------------------------------------

_SUMMED = ["calls", "duration_s", "flops", "tensor_flops", "bytes", "share"]
_MEANS = [name for name in FIGURES if name not in _SUMMED]


def profile_rows(launches: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """A row a launch: number, kernel, stage, its `figures`, share of the time of all."""
    of_launch: dict[int, list[Any]] = defaultdict(list)
    for row in metrics[["number", "metric", "value", "unit"]].to_dict("records"):
        of_launch[row["number"]].append(row)
    found = [figures(of_launch[number]) for number in launches["number"]]
    rows = launches[["number", "kernel", "stage"]].join(pd.DataFrame(found, columns=list(figures([]))))
    numbers = [*FIGURES, "tensor_flops", "flops"]
    rows = rows.astype(dict.fromkeys(numbers, float)).assign(calls=1.0)
    # A row of `--print-summary` is the mean of its invocations.
    took = rows["duration_s"] * rows["invocations"].fillna(1.0)
    return rows.assign(share=took / took.sum(min_count=1))


def by_kernel(rows: pd.DataFrame, *more: str) -> pd.DataFrame:
    """`profile_rows` with a row a kernel, stage and what `more` names, in the order of their time.

    Calls, times, FLOPs, bytes and shares are sums; the other figures are means over the time; the class
    follows from those. A sum of which a part is not known is not known.
    """
    keys = ["kernel", "stage", *more]
    groups = rows.groupby(keys, sort=False, dropna=False)
    weights = rows["duration_s"].fillna(groups["duration_s"].transform("mean")).fillna(1.0)
    weighed = rows[keys].join(rows[_MEANS].mul(weights, axis=0))
    spent = rows[keys].join(rows[_MEANS].notna().mul(weights, axis=0))
    sums = groups[_SUMMED].sum().where(groups[_SUMMED].count().eq(groups.size(), axis=0))
    means = (
        weighed.groupby(keys, sort=False, dropna=False).sum(min_count=1)
        / spent.groupby(keys, sort=False, dropna=False).sum()
    )
    found = pd.concat([groups[["number", "limiter"]].first(), sums, means], axis=1).reset_index()
    found["class"] = [class_of(row) for row in found[["sm", "dram", "memory"]].to_dict("records")]
    return found.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def device_name(metrics: pd.DataFrame) -> str | None:
    """The card's name, where all launches that have one have the same."""
    names = metrics.loc[metrics["metric"] == "device__attribute_display_name", "text"].dropna().unique()
    return str(names[0]) if len(names) == 1 else None


# --- two runs -------------------------------------------------------------------------------------

BOTH, NEW, GONE = "in both", "new", "gone"
SHARES = ("sm", "memory", "dram", "occupancy")
"""Shares of a peak that stand side by side."""
_OF_SIDE = ("launch", "calls", "class", "total_s", "each_s", *SHARES)
_SAME_WORK = (0.95, 1.05)
"""Launches of B over those of A, the median of what both have, that count as the same work."""


@dataclass(frozen=True)
class KernelPairs:
    """Kernels of two runs side by side."""

    words: str
    """Sentence on the comparison and its limits."""
    rows: pd.DataFrame
    """A row a kernel, stage and launch shape: found, stage, kernel, and launch, calls, class, total_s, each_s
    and SHARES of both, each with its side behind it, and change_s; the largest change first. Where the
    profiles cover different work a change is that of one launch, times A's."""
    sides: pd.DataFrame
    """Kernels of both with a column `side`, "A" or "B", as a roofline takes them."""
    sql: list[str]


def kernel_pairs(history: History, a: str, b: str, stage: str | None = None) -> KernelPairs:
    """Match the kernels of two runs by name and launch shape, stage by stage where both know it.

    What is left over is matched by its name alone, and all of it where a side has sums (Nsight Systems,
    torch), which know no launch shape and no Speed of Light. Raises HistoryError.
    """
    launched = {*history.runs_with("kernel_launches")}
    read = [(_launched if run in launched else _summed)(history, run) for run in (a, b)]
    sides = [rows for rows, _ in read]
    if not all(side["stage"].notna().all() for side in sides):
        sides = [side.assign(stage=None) for side in sides]
    if not {a, b} <= launched:
        sides = [side.assign(launch=None) for side in sides]
    sides = [by_kernel(side, "launch").rename(columns={"duration_s": "total_s"}) for side in sides]
    sides = [side.assign(each_s=side["total_s"] / side["calls"].where(side["calls"] > 0)) for side in sides]
    if stage is not None:
        sides = [side[side["stage"] == stage] for side in sides]
    rows = _matched(*sides)
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
        f"{counts.get(GONE, 0)} gone, by name and launch shape; {totals} in all."
    )
    if by_call:
        words += (
            f" B has {significant(times)} times the launches of A: the profiles cover different work, so a "
            "change is that of one launch, times A's launches; what is new or gone comes last and may be "
            "what was not profiled."
        )
    named = [side.assign(side=name) for side, name in zip(sides, "AB", strict=True)]
    rows, sql = rows.drop(columns=["last", "most"]), [sql for _, sql in read]
    return KernelPairs(words, rows, pd.concat(named, ignore_index=True), sql)


def _launched(history: History, run: str) -> tuple[pd.DataFrame, str]:
    launches, _ = history.query("launches", run_ids=[run])
    metrics, sql = history.query("launch_metrics", run_ids=[run])
    shapes = launches["grid"].fillna("?") + " x " + launches["block"].fillna("?")
    return profile_rows(launches, metrics).assign(launch=shapes), sql


def _summed(history: History, run: str) -> tuple[pd.DataFrame, str]:
    """Sums of kernels in the form of `profile_rows`."""
    kernels, sql = history.query("kernels", run_ids=[run], top=100_000)
    numbers = dict.fromkeys([*_MEANS, *_SUMMED], float)
    rows = kernels.rename(columns={"name": "kernel", "instances": "calls"})
    rows = rows.reindex(columns=["kernel", "stage", "number", "limiter", *_MEANS, *_SUMMED])
    rows = rows.assign(duration_s=kernels["total_ns"] / 1e9, share=kernels["total_ns"], launch=None)
    return rows.astype(numbers), sql


def _matched(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Pair kernels of one stage, name and launch shape, then of one stage and name, the longest first."""
    sides = [
        side[["stage", "kernel", *_OF_SIDE]].assign(
            name=side["kernel"].map(plain_name), shape=side["launch"], at=range(len(side))
        )
        for side in (a, b)
    ]
    exact = _merged(sides, ["stage", "name", "shape"], "inner")
    rest = [side[~side["at"].isin(exact[f"at_{name}"])] for side, name in zip(sides, "ab", strict=True)]
    rows = pd.concat([exact, _merged(rest, ["stage", "name"], "outer")], ignore_index=True)
    rows = rows.assign(
        found=rows["_merge"].map({"both": BOTH, "left_only": GONE, "right_only": NEW}).astype(object),
        kernel=rows["kernel_b"].fillna(rows["kernel_a"]),
    )
    return rows[["found", "stage", "kernel", *(f"{name}_{side}" for name in _OF_SIDE for side in "ab")]]


def _merged(sides: Sequence[pd.DataFrame], keys: list[str], how: Any) -> pd.DataFrame:
    """Two sides merged by their keys: the nth of a key in A belongs to the nth in B."""
    left, right = (side.assign(nth=side.groupby(keys, dropna=False).cumcount()) for side in sides)
    return left.merge(right, on=[*keys, "nth"], how=how, suffixes=("_a", "_b"), indicator=True)


_PROFILED = ["git_commit", "gpu", "engine", "preset"]


def profile_of(history: History, runs: pd.DataFrame, run: str) -> str | None:
    """Find the newest run with kernels of a run's commit, card, engine, preset, in `runs` (newest first)."""
    profiled = runs["run_id"].isin({*history.runs_with("kernels"), *history.runs_with("kernel_launches")})
    same = (runs[_PROFILED] == runs.set_index("run_id").loc[run, _PROFILED]).all(axis=1)
    return next(iter(runs.loc[profiled & same, "run_id"]), None)

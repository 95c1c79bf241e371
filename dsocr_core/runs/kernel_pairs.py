"""Kernels of two runs side by side: time and Speed of Light of what both have, what is new, what is gone."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from dsocr_core.base.formatting import amount, plural, significant
from dsocr_core.runs.history import History
from dsocr_core.runs.kernel_names import plain_name
from dsocr_core.runs.profiled import by_kernel, profile_rows

BOTH, NEW, GONE = "in both", "new", "gone"
FIGURES = ("sm", "memory", "dram", "occupancy")
"""Shares of a peak that stand side by side, as `profiled` names them."""
_SUMS = ("calls", "total_s", "flops", "tensor_flops", "bytes")
_SIDE = ["stage", "kernel", "launch", "class", *_SUMS, *FIGURES]
_SAME_WORK = (0.95, 1.05)
"""Launches of B over those of A, the median of what both have, that count as the same work."""


@dataclass(frozen=True)
class KernelPairs:
    rows: pd.DataFrame
    """A row a kernel, stage and launch shape: found, stage, kernel, and launch, calls, class, total_s, each_s
    and FIGURES of both, each with its side behind it, and change_s; the largest change first."""
    sides: pd.DataFrame
    """Kernels of both with a column `side`, "A" or "B", as a roofline takes them."""
    by_call: bool
    """True where the profiles cover different work: change_s is then that of one launch, times A's."""
    sql: list[str]

    @property
    def words(self) -> str:
        """Say what is compared and how far it goes."""
        counts = self.rows["found"].value_counts()
        named = f"{plural(int(counts.get(BOTH, 0)), 'kernel')} in both, {counts.get(NEW, 0)} new in B, "
        totals = (amount(self.rows[f"total_s_{side}"].sum(), "s") for side in "ab")
        named += f"{counts.get(GONE, 0)} gone, by name and launch shape; {' → '.join(totals)} in all"
        if not self.by_call:
            return f"{named}."
        both = self.rows[self.rows["found"] == BOTH]
        times = significant(float((both["calls_b"] / both["calls_a"]).median()))
        return (
            f"{named}. B has {times} times the launches of A: the profiles cover different work, so a change "
            "is that of one launch, times A's launches; what is new or gone comes last and may be what was "
            "not profiled."
        )


def kernel_pairs(history: History, a: str, b: str, stage: str | None = None) -> KernelPairs:
    """Match the kernels of two runs by name and launch shape, stage by stage where both know it.

    What is left over is matched by its name alone, and all of it where a side has sums (Nsight Systems,
    torch), which know no launch shape and no Speed of Light. Raises HistoryError.
    """
    launched = {*history.runs_with("kernel_launches")}
    shape = "launch" if {a, b} <= launched else None
    sides, sql = {}, []
    for name, run in (("a", a), ("b", b)):
        sides[name], asked = _launched(history, run, shape) if run in launched else _summed(history, run)
        sql.append(asked)
    if not all(side["stage"].notna().all() for side in sides.values()):
        sides = {name: _of_all_stages(side) for name, side in sides.items()}
    if stage is not None:
        sides = {name: side[side["stage"] == stage] for name, side in sides.items()}
    sides = {
        name: side.assign(each_s=side["total_s"] / side["calls"].where(side["calls"] > 0))
        for name, side in sides.items()
    }
    rows = _matched(*(side.reset_index(drop=True) for side in sides.values()))
    both = rows["found"] == BOTH
    share = (rows["calls_b"] / rows["calls_a"])[both].median()
    by_call = bool(share < _SAME_WORK[0] or share > _SAME_WORK[1])
    change = rows["total_s_b"].fillna(0) - rows["total_s_a"].fillna(0)
    if by_call:
        change = change.where(~both, (rows["each_s_b"] - rows["each_s_a"]) * rows["calls_a"])
    order = {"last": by_call & ~both, "most": -change.abs()}
    rows = rows.assign(change_s=change, **order).sort_values([*order], kind="stable", ignore_index=True)
    named = pd.concat([side.assign(side=name.upper()) for name, side in sides.items()], ignore_index=True)
    return KernelPairs(rows[[*_COLUMNS, "change_s"]], named, by_call, sql)


def _launched(history: History, run: str, shape: str | None) -> tuple[pd.DataFrame, str]:
    launches, _ = history.query("launches", run_ids=[run])
    metrics, sql = history.query("launch_metrics", run_ids=[run])
    shapes = launches["grid"].fillna("?") + " x " + launches["block"].fillna("?")
    rows = by_kernel(profile_rows(launches, metrics).assign(launch=shapes), shape)
    rows = rows.rename(columns={"launches": "calls", "duration_s": "total_s"})
    return (rows if shape else rows.assign(launch=None))[_SIDE], sql


def _summed(history: History, run: str) -> tuple[pd.DataFrame, str]:
    kernels, sql = history.query("kernels", run_ids=[run], top=100_000)
    rows = kernels.rename(columns={"name": "kernel", "instances": "calls"})
    rows = rows.assign(total_s=rows["total_ns"] / 1e9, launch=None)
    return rows.reindex(columns=_SIDE), sql


def _of_all_stages(side: pd.DataFrame) -> pd.DataFrame:
    """Kernels without their stages: calls, times, FLOPs and bytes added up, shares as means over the time."""
    found = []
    for (kernel, launch), part in side.groupby(["kernel", side["launch"].fillna("")], sort=False):
        weights = part["total_s"] / part["total_s"].sum()
        row = {"stage": None, "kernel": kernel, "launch": launch or None, "class": part["class"].iloc[0]}
        row |= {name: part[name].sum(min_count=len(part)) for name in _SUMS}
        row |= {name: (part[name] * weights).sum(min_count=len(part)) for name in FIGURES}
        found.append(row)
    return pd.DataFrame(found, columns=_SIDE)


_OF_SIDE = ("launch", "calls", "class", "total_s", "each_s", *FIGURES)
_COLUMNS = ["found", "stage", "kernel", *(f"{name}_{side}" for name in _OF_SIDE for side in "ab")]


def _matched(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Pair kernels of one stage, name and launch shape, then of one stage and name, the longest first."""
    sides = [
        side.assign(name=side["kernel"].map(plain_name), launch_=side["launch"].fillna("")) for side in (a, b)
    ]
    pairs = []
    for keys in (["stage", "name", "launch_"], ["stage", "name"]):
        # The nth of a key in A belongs to the nth in B.
        numbered = [side.assign(nth=side.groupby(keys, dropna=False).cumcount()) for side in sides]
        places = [side.reset_index(names="at")[[*keys, "nth", "at"]] for side in numbered]
        pairs.append(places[0].merge(places[1], on=[*keys, "nth"], suffixes=("_a", "_b"))[["at_a", "at_b"]])
        sides = [side.drop(index=pairs[-1][at]) for side, at in zip(sides, ("at_a", "at_b"), strict=True)]
    both = pd.concat(pairs)
    names = ["stage", "kernel", *_OF_SIDE]
    left, right = (
        side.loc[both[at], names].reset_index(drop=True) for side, at in ((a, "at_a"), (b, "at_b"))
    )
    columns = list(_OF_SIDE)
    matched = (
        right[["stage", "kernel"]].join(left[columns].add_suffix("_a")).join(right[columns].add_suffix("_b"))
    )
    parts = [matched.assign(found=BOTH)] + [
        rest[names].rename(columns={name: f"{name}_{side}" for name in columns}).assign(found=word)
        for rest, side, word in zip(sides, "ab", (GONE, NEW), strict=True)
    ]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True).reindex(
        columns=_COLUMNS
    )


_PROFILED = ("git_commit", "gpu", "engine", "preset")


def profile_of(history: History, runs: pd.DataFrame, run: str) -> str | None:
    """Find the newest run with kernels of a run's commit, card, engine, preset, in `runs` (newest first)."""
    profiled = runs["run_id"].isin({*history.runs_with("kernels"), *history.runs_with("kernel_launches")})
    own = runs.set_index("run_id").loc[run, list(_PROFILED)]
    same = (runs[list(_PROFILED)] == own).all(axis=1)
    return next(iter(runs.loc[profiled & same, "run_id"]), None)

"""Is a difference real: ratios of medians with their uncertainty, and where a trend changed."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Verdict = Literal["faster", "slower", "within", "inconclusive"]
"""Of B against A: beyond the neutral band, inside of it, or neither."""
Array = npt.NDArray[np.float64]

NEUTRAL_BAND = 0.02
"""Differences up to 2% are noise: clocks and other processes cause as much."""

FEWEST_PAGES = 5
"""With fewer pairs no interval is believed."""

_RESAMPLES = 2000
_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Ratio:
    """Time of B over time of A on the same pages; below 1 means that B is faster."""

    n: int
    median_a: float
    median_b: float
    ratio: float
    low: float
    """Lower end of the interval of the ratio; NaN when n is too small for one."""
    high: float
    verdict: Verdict


def ratio_of_medians(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    neutral: float = NEUTRAL_BAND,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Ratio:
    """median(b) / median(a) with its bootstrap interval, pages drawn as pairs.

    A page that is slow in A is slow in B: drawing a page with both its times keeps that out of the
    uncertainty. The verdict needs the whole interval beyond the neutral band. `a` and `b` hold
    milliseconds of the same pages, (N,) each. Raises ValueError when their lengths differ or they are
    empty or not positive and finite.
    """
    times_a, times_b = np.asarray(a, np.float64), np.asarray(b, np.float64)  # (N,)
    if times_a.shape != times_b.shape or times_a.ndim != 1 or not len(times_a):
        raise ValueError(f"pairs are needed, got {times_a.shape} and {times_b.shape}")
    if not (np.isfinite(times_a).all() and np.isfinite(times_b).all()):
        raise ValueError("times must be finite")
    n = len(times_a)
    median_a, median_b = float(np.median(times_a)), float(np.median(times_b))
    ratio = median_b / median_a if median_a > 0 else float("nan")
    if n < FEWEST_PAGES or not median_a > 0:
        return Ratio(n, median_a, median_b, ratio, float("nan"), float("nan"), "inconclusive")
    ratios = _resampled_ratios(times_a, times_b, resamples, seed)
    tail = (1 - confidence) / 2
    low, high = (float(value) for value in np.quantile(ratios, [tail, 1 - tail]))
    return Ratio(n, median_a, median_b, ratio, low, high, verdict(low, high, neutral))


def verdict(low: float, high: float, neutral: float = NEUTRAL_BAND) -> Verdict:
    """What an interval of time ratios says. The band is symmetric in the logarithm: 1.02 and 1 / 1.02."""
    if high < 1 / (1 + neutral):
        return "faster"
    if low > 1 + neutral:
        return "slower"
    return "within" if low >= 1 / (1 + neutral) and high <= 1 + neutral else "inconclusive"


def outcome_words(outcome: str, neutral: float = NEUTRAL_BAND) -> str:
    """Write an outcome for people: "within ±2 %"."""
    return f"within ±{100 * neutral:g} %" if outcome == "within" else outcome


def _resampled_ratios(a: Array, b: Array, resamples: int, seed: int) -> Array:
    """Ratios of medians of pages drawn with replacement: (R,)"""
    n = len(a)
    step = max(1, _AT_ONCE // n)
    medians = []
    for start in range(0, resamples, step):
        counts = _draws(n, min(step, resamples - start), seed + start)  # (r, N)
        medians.append((_counted_medians(a, counts), _counted_medians(b, counts)))
    medians_a, medians_b = (np.concatenate(side) for side in zip(*medians, strict=True))
    ratios: Array = medians_b[medians_a > 0] / medians_a[medians_a > 0]
    return ratios


@functools.lru_cache(maxsize=4)
def _draws(n: int, resamples: int, seed: int) -> npt.NDArray[np.int16]:
    """How often each of n pages is drawn, (R, N); the stages of a run share them."""
    drawn = np.random.default_rng(seed).integers(0, n, (resamples, n))
    drawn += np.arange(resamples)[:, None] * n
    counts = np.bincount(drawn.ravel(), minlength=resamples * n)
    return counts.astype(np.int16).reshape(resamples, n)


def _counted_medians(values: Array, counts: npt.NDArray[np.int16]) -> Array:
    """Medians of values that occur so often, (R,): found by counting along the sorted values, unsorted copies
    of which never need to be made."""
    order, n = np.argsort(values, kind="stable"), len(values)
    reached = np.cumsum(counts[:, order], axis=1, dtype=np.int32)  # (R, N)
    lower = np.count_nonzero(reached <= (n - 1) // 2, axis=1)
    upper = np.count_nonzero(reached <= n // 2, axis=1)
    ordered = values[order]
    medians: Array = (ordered[lower] + ordered[upper]) / 2
    return medians


def compare_stages(
    pairs: pd.DataFrame, neutral: float = NEUTRAL_BAND, seed: int = 0, contended: bool = False
) -> pd.DataFrame:
    """One row a stage from the query `pairs` (columns stage, page, a_ms, b_ms).

    Beside other programs (`contended`) a difference says nothing of the backends: inconclusive.
    """
    rows = []
    for stage, group in pairs.groupby("stage", sort=True):
        found = ratio_of_medians(
            group["a_ms"].to_numpy(), group["b_ms"].to_numpy(), neutral=neutral, seed=seed
        )
        outcome = "inconclusive" if contended else found.verdict
        rows.append({"stage": stage, **vars(found), "verdict": outcome})
    columns = ["stage", *Ratio.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns)


# --- over time ----------------------------------------------------------------------------------


def change_points(values: npt.ArrayLike, *, fewest: int = 3, strictness: float = 3.0) -> list[int]:
    """Where the level of a series changes: positions of the first value of each new level.

    Exact segmentation of the logarithms into constant levels: the sum of squares plus a price for every
    change, the price being `strictness` times noise variance times log N (strictness 3 finds a change in
    fewer than one in twenty series of pure noise). The noise comes from differences of neighbours, which
    a change of level hardly touches. A level lasts `fewest` values at least, and a value that is off by
    itself makes none. `values` are positive milliseconds in order of time, (N,); values that are not are
    left out of the decision.
    """
    series = np.asarray(values, np.float64)
    usable = np.flatnonzero(np.isfinite(series) & (series > 0))
    x = np.log(series[usable])  # (M,)
    if len(x) < 2 * fewest:
        return []
    differences = np.diff(x)
    noise = 1.4826 * float(np.median(np.abs(differences - np.median(differences)))) / np.sqrt(2)
    # Clocks tell times to a part in ten thousand at best: two levels closer than that are one.
    variance = max(noise, 1e-4) ** 2
    price = 2 * strictness * variance * np.log(len(x))
    calm = _without_strays(x, fewest, 3 * math.sqrt(variance))
    return [int(usable[position]) for position in _segment(calm, price, fewest)]


def _without_strays(x: Array, fewest: int, most: float) -> Array:
    """Values further than `most` from the median around them replaced by it, (M,).

    The median is of the 2 `fewest` - 1 values around each: levels of `fewest` values survive it, less do
    not. Squared errors would give a run that is off, with the runs beside it, a level of its own.
    """
    beyond = np.full(fewest - 1, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([beyond, x, beyond]), 2 * fewest - 1
    )  # (M, 2 fewest - 1)
    medians: Array = np.nanmedian(windows, axis=1)
    return np.where(np.abs(x - medians) > most, medians, x)


def _segment(x: Array, price: float, fewest: int) -> list[int]:
    """Starts of the segments after the first that make squared error plus price least (dynamic program)."""
    n = len(x)
    sums, squares = np.concatenate([[0.0], np.cumsum(x)]), np.concatenate([[0.0], np.cumsum(x * x)])
    best, origin = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    best[0] = -price
    for end in range(fewest, n + 1):
        starts = np.arange(0, end - fewest + 1)
        length = end - starts
        total = sums[end] - sums[starts]
        error = squares[end] - squares[starts] - total * total / length
        cost = best[starts] + error + price
        choice = int(np.argmin(cost))
        best[end], origin[end] = cost[choice], starts[choice]
    points, end = [], n
    while origin[end] > 0:
        end = int(origin[end])
        points.append(end)
    return points[::-1]


# --- a value run after run ------------------------------------------------------------------------

_FEWEST_RUNS = 6
"""With fewer, `change_points` has no noise between runs to go by."""
_STEP = 0.1
"""By how much two runs alone have to differ: from one run to the next machines drift by some percent."""


def with_spread(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `value`, `low` and `high`: median, p5 and p95.

    Of an imported run that has nothing else, its mean and one standard deviation around it; `of_pages` tells
    which.
    """
    return rows.assign(
        of_pages=rows["median"].notna(),
        value=rows["median"].fillna(rows["mean"]).astype(float),
        low=rows["p5"].fillna((rows["mean"] - rows["std"]).clip(lower=0)).astype(float),
        high=rows["p95"].fillna(rows["mean"] + rows["std"]).astype(float),
    )


def with_levels(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of runs in order of time with their `position`, and the `level` each lies on in its `condition`.

    Needs condition, n, value, low and high of `with_spread`.
    """
    rows = rows.assign(position=range(len(rows)))
    level = np.zeros(len(rows), np.int64)
    every = rows["value"].to_numpy()
    for at in rows.groupby("condition").indices.values():
        values = every[at]
        points = change_points(values) if len(at) >= _FEWEST_RUNS else _steps(rows.iloc[at])
        for point in _telling(values, points):
            level[at[point:]] += 1
    return rows.assign(level=level)


def _steps(group: pd.DataFrame) -> list[int]:
    """Where, in a series of few runs, a run's p5 to p95 lies apart from that of the run before."""
    columns = (group[name].tolist() for name in ("n", "low", "high", "value"))
    return [
        number
        for number, ((n, low, high, value), after) in enumerate(pairwise(zip(*columns, strict=True)), start=1)
        if min(n, after[0]) >= FEWEST_PAGES
        and (after[2] < low or high < after[1])
        and abs(np.log(after[3] / value)) > np.log(1 + _STEP)
    ]


def _telling(values: npt.NDArray[np.float64], points: list[int]) -> list[int]:
    """Change points without those whose two levels have medians within the neutral band."""
    while points:
        medians = [np.nanmedian(part) for part in np.split(values, points)]
        steps = [abs(np.log(after / before)) for before, after in pairwise(medians)]
        least = int(np.argmin(steps))
        if steps[least] > np.log(1 + NEUTRAL_BAND):
            break
        points = [*points[:least], *points[least + 1 :]]
    return points


def levels(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a level of `with_levels`: condition, level, first and last position and time, n, value."""
    names = ("position", "created", "run_id", "git_commit")
    of = {name: rows[name].tolist() for name in names}
    values = rows["value"].to_numpy(float)
    found = []
    for (name, level), at in rows.groupby(["condition", "level"], sort=False).indices.items():
        first, last = at[0], at[-1]
        there = values[at][~np.isnan(values[at])]
        found.append(
            {
                "condition": name, "level": level, "n": len(at),
                "value": float(np.median(there)) if len(there) else float("nan"),
                "first": int(of["position"][first]), "last": int(of["position"][last]),
                "since": of["created"][first], "until": of["created"][last],
                "run_id": of["run_id"][first], "git_commit": of["git_commit"][first],
            }
        )  # fmt: skip
    columns = ["condition", "level", "n", "value", "first", "last", "since", "until", "run_id", "git_commit"]
    return pd.DataFrame(found, columns=columns)


def changes(found: pd.DataFrame) -> pd.DataFrame:
    """Where one level of `levels` follows another: with the level before, in order of time."""
    rows = []
    for _, group in found.groupby("condition", sort=False):
        steps = group.sort_values("level").to_dict("records")
        rows += [
            {**after, "before": before["value"], "n_before": before["n"],
             "commit_before": before["git_commit"]}
            for before, after in pairwise(steps)
        ]  # fmt: skip
    return pd.DataFrame(
        sorted(rows, key=lambda row: int(row["first"])),
        columns=[*found.columns, "before", "n_before", "commit_before"],
    )

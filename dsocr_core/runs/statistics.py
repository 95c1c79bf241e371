"""Is a difference real: ratios of times with their uncertainty."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from dsocr_core.base.formatting import plural

Verdict = Literal["faster", "slower", "within", "inconclusive"]
"""Outcome of B against A: beyond the neutral band, inside of it, or neither."""
Array = npt.NDArray[np.float64]

NEUTRAL_BAND = 0.02  # differences up to 2% are noise: clocks and other processes cause as much
ERROR = 0.05  # share of intervals that may miss the truth
FEWEST_PAGES, FEWEST_RUNS = 5, 2  # with fewer pages, or runs a side, no interval is believed
TOTAL = "total"  # the stage that is a page as a whole, and comes last
COPY = re.compile(r" #\d+$")  # behind the name of a page that a run has read more than once


@dataclass(frozen=True)
class Ratio:
    """Time of B over time of A on the same pages; below 1 means that B is faster."""

    n: int  # runs of the side that has fewer, each of them a process of its own
    runs_a: int
    runs_b: int
    pages: int
    median_a: float  # over a run's pages; of several runs the median of theirs
    median_b: float
    ratio: float  # NaN where there is no interval: never from one page or one process
    low: float
    high: float
    verdict: Verdict
    why: str = ""  # it is inconclusive, where more of the same would not change that


def ratio_of_runs(
    a: Array, b: Array, paired: bool = False, neutral: float = NEUTRAL_BAND, error: float = ERROR
) -> Ratio:
    """The ratio of B's times to A's: milliseconds (runs, pages), the same pages in the same order.

    A run's place is the median of its pages' log times, each from the page's mean over all runs; the interval
    is Student's on the runs' places, with the pages' own scatter added, and misses the truth with probability
    `error`. `paired`: row for row both sides are of one run, or of two that followed each other.
    """
    pages, runs = a.shape[1], (len(a), len(b))
    median_a, median_b = (float(np.median(np.median(side, axis=1))) for side in (a, b))
    nothing = Ratio(min(runs), *runs, pages, median_a, median_b, math.nan, math.nan, math.nan, "inconclusive")
    if pages < FEWEST_PAGES:
        return replace(nothing, why=f"{plural(pages, 'page')}: too few")
    if min(runs) < FEWEST_RUNS:
        which = "a side" if max(runs) < FEWEST_RUNS else "of A" if runs[0] < runs[1] else "of B"
        return replace(nothing, why=f"one run {which}; an interval needs {FEWEST_RUNS} of each")
    log_a, log_b = np.log(a), np.log(b)
    page = np.concatenate([log_a, log_b]).mean(axis=0)
    places_a, places_b = (np.median(side - page, axis=1) for side in (log_a, log_b))
    middle = float(places_b.mean() - places_a.mean())
    if paired:
        degrees = runs[0] - 1
        of_runs = float(np.var(places_b - places_a, ddof=1)) / runs[0]
    else:
        degrees = sum(runs) - 2
        within = float(runs[0] * np.var(places_a) + runs[1] * np.var(places_b))
        of_runs = within / degrees * (1 / runs[0] + 1 / runs[1])
    of_pages = float(np.var(log_b.mean(axis=0) - log_a.mean(axis=0), ddof=1)) / pages
    half = student(error, degrees) * math.sqrt(of_runs + of_pages)
    low, high = math.exp(middle - half), math.exp(min(middle + half, _LARGEST_LOG))
    return replace(nothing, ratio=math.exp(middle), low=low, high=high, verdict=verdict(low, high, neutral))


_LARGEST_LOG = 700.0  # the exponential of more is no float


@cache
def student(error: float, degrees: int) -> float:
    """Student's t that is exceeded, on either side, with probability `error`."""
    angles = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (degrees - 1)  # of the angle whose tangent is t over the root of the degrees
    within = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.tan(np.interp((1 - error) * within[-1], within, angles)) * math.sqrt(degrees)


def verdict(low: float, high: float, neutral: float = NEUTRAL_BAND) -> Verdict:
    """Judge an interval of time ratios. The band is symmetric in the logarithm: 1.02 and 1 / 1.02."""
    if high < 1 / (1 + neutral):
        return "faster"
    if low > 1 + neutral:
        return "slower"
    return "within" if low >= 1 / (1 + neutral) and high <= 1 + neutral else "inconclusive"


SURE = ("faster", "slower")
"""Outcomes of which it is said how much."""


def outcome_words(outcome: str, neutral: float = NEUTRAL_BAND) -> str:
    """Write an outcome for people: "within ±2 %"."""
    return f"within ±{100 * neutral:g} %" if outcome == "within" else outcome


def compare_runs(
    draws: pd.DataFrame, chosen: tuple[str, str], neutral: float = NEUTRAL_BAND, error: float = ERROR
) -> pd.DataFrame:
    """`ratio_of_runs` as one row a stage, from the query `draws`: side, run_id, stage, page, ms.

    The `chosen` runs of A and B say which pages count; another run that lacks one of them is left out. Where
    both are one, sides are paired run by run.
    """
    rows = []
    named = draws[draws["ms"] > 0]
    named = named.assign(page=named["page"].str.replace(COPY, "", regex=True))
    # One table of all stages: a table a stage takes pandas ten times as long.
    medians = named.groupby(["stage", "side", "run_id", "page"], observed=True)["ms"].median().unstack("page")
    times, runs = medians.to_numpy(), medians.index.get_level_values("run_id").to_numpy()
    places = medians.groupby(["stage", "side"], observed=True).indices
    # Of pages that a run has read more than once, as everywhere: each reading counts.
    of_runs = named.groupby(["stage", "side", "run_id"], observed=True)["ms"].median().to_dict()
    for stage in medians.index.unique("stage"):
        sides = [places.get((stage, side), np.zeros(0, np.int64)) for side in ("a", "b")]
        first = [at[runs[at] == run] for run, at in zip(chosen, sides, strict=True)]
        if not all(map(len, first)):
            continue
        both = np.isfinite(times[np.concatenate(first)]).all(axis=0)  # (P,)
        if not both.any():
            continue
        sides = [at[np.isfinite(times[at][:, both]).all(axis=1)] for at in sides]
        if paired := chosen[0] == chosen[1]:
            sides = [at[np.isin(runs[at], runs[other])] for at, other in zip(sides, sides[::-1], strict=True)]
        a, b = (times[at][:, both] for at in sides)  # (R, P) each
        row = vars(ratio_of_runs(a, b, paired, neutral, error)) | {"stage": stage}
        if all((np.isfinite(times[at]) == both).all() for at in sides):
            for side, at in zip("ab", sides, strict=True):
                row[f"median_{side}"] = float(np.median([of_runs[stage, side, run] for run in runs[at]]))
        rows.append(row)
    rows.sort(key=lambda row: row["stage"] == TOTAL)
    return pd.DataFrame(rows, columns=["stage", *Ratio.__dataclass_fields__])

"""Speed of one side beside the other: of two runs, and of the runs that are like each of them.

A run is one process. What a process does to all of its pages (where its memory lies, what else runs) is no
smaller on more pages, so the draws are runs: those of one commit, machine and setting as the chosen one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsocr_core.base.formatting import duration, plural, significant, speed_ratio
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import WHOLE, in_order, pages_together
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.results import RunSide
from dsocr_core.runs.statistics import COPY, ERROR, NEUTRAL_BAND, SURE, TOTAL, Ratio, compare_runs

MOST_RUNS = 30  # draws of a side
LATENCY = "latency is not throughput"
CONTENDED = "other programs took the machine"
ONE_DRAFTED = "one of the two verified drafts, which decide how fast it was"
_NO_SPEED = {"verdict": "inconclusive"} | dict.fromkeys(("ratio", "low", "high"), math.nan)
ONE_KIND = "A and B are runs of one commit, machine and setting: they differ as such runs do"


@dataclass(frozen=True)
class Pair:
    """A and B, and of each the runs that count: the chosen one and those like it."""

    a: RunSide
    b: RunSide
    runs_a: Sequence[str]
    runs_b: Sequence[str]
    one_kind: bool = False  # True where both are of one commit, machine and setting


def compare_speed(history: History, a: RunSide, b: RunSide, contended: bool = False) -> pd.DataFrame:
    """`statistics.compare_runs` of both sides, a row a stage and one of whole pages.

    Empty where they have no page's times in common. With `contended` runs beside other programs count, and
    drafted ones beside undrafted ones. Raises HistoryError.
    """
    kinds, _ = history.query("kinds")
    runs_a, runs_b = (_alike(kinds, run, contended) for run, _ in (a, b))
    if one_kind := a[0] != b[0] and b[0] in runs_a:
        runs_a, runs_b = [a[0]], [b[0]]
    return compare_pairs(history, [Pair(a, b, runs_a, runs_b, one_kind)], contended)[0]


def _alike(kinds: pd.DataFrame, run_id: str, contended: bool) -> list[str]:
    """The run and the newest of its commit, machine and setting."""
    of_kind = kinds["kind"].isin(kinds.loc[kinds["run_id"] == run_id, "kind"]) & ~kinds["trashed"]
    found = kinds[of_kind & (contended | ~kinds["contended"])]
    return list(dict.fromkeys([run_id, *found["run_id"].head(MOST_RUNS)]))


def compare_pairs(history: History, pairs: Sequence[Pair], contended: bool = False) -> list[pd.DataFrame]:
    """`compare_speed` of each pair, whose runs are known. Raises HistoryError."""
    draws, found = _draws(history, pairs), []
    of_pairs = draws.groupby("pair").indices
    for number, pair in enumerate(pairs):
        compared = compare_runs(draws.iloc[of_pairs.get(number, [])], (pair.a[0], pair.b[0]))
        if why := _no_speed(history.record(pair.a[0]), history.record(pair.b[0]), contended):
            compared = compared.assign(**_NO_SPEED, why=why)
        elif pair.one_kind:
            compared = compared.assign(why=ONE_KIND)
        found.append(compared)
    return found


def _draws(history: History, pairs: Sequence[Pair]) -> pd.DataFrame:
    """The query `draws`. `pair` is the place in `pairs`."""
    rows = [
        (number, side, run, backend, run == chosen)
        for number, pair in enumerate(pairs)
        for side, (chosen, backend), runs in (("a", pair.a, pair.runs_a), ("b", pair.b, pair.runs_b))
        for run in runs
    ]
    names = ("pairs", "sides", "run_ids", "backends", "chosen")
    return history.query("draws", **dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))[0]


def _no_speed(a: RunRecord, b: RunRecord, contended: bool) -> str:
    """Say why times of two runs are no times of one thing; empty where they are."""
    together = pages_together(a.engine), pages_together(b.engine)
    if together[0] != together[1]:
        return f"A reads {together[0]} and B {together[1]} pages at a time: {LATENCY}"
    if contended:
        return ""
    return ONE_DRAFTED if a.drafted != b.drafted else CONTENDED * (a.contended or b.contended)


def compare_processes(
    history: History,
    rounds: Sequence[tuple[str, str]],
    backend: str,
    rates: Mapping[str, Mapping[str, float]],
    neutral: float = NEUTRAL_BAND,
    error: float = ERROR,
) -> pd.DataFrame:
    """`statistics.compare_runs` of benches that took turns, a row a stage, one of whole pages, one a rate.

    `rates` has by run what its process did a second (`tokens/s`, `pages/s`). Raises HistoryError.
    """
    if not rounds:
        return pd.DataFrame(columns=["stage", *Ratio.__dataclass_fields__])
    a, b = rounds[0]
    runs_a, runs_b = zip(*rounds, strict=True)
    draws = _draws(history, [Pair((a, backend), (b, backend), runs_a, runs_b)])
    pages = draws[["side", "run_id", "page"]].drop_duplicates()
    of_processes = [
        pages.assign(stage=name, ms=1000 / pages["run_id"].map({run: rates[run][name] for run in rates}))
        for name in {name for run in rates.values() for name in run}
    ]
    places = {run: str(place) for place, runs in enumerate(rounds) for run in runs}
    draws = pd.concat([draws, *of_processes], ignore_index=True)
    found = compare_runs(draws.assign(run_id=draws["run_id"].map(places)), ("0", "0"), neutral, error)
    before, now = history.record(a), history.record(b)
    for name, words in (("gpu", "GPU"), ("host", "host"), ("device", "device")):
        if (other := getattr(before, name)) != (own := getattr(now, name)):
            machines = f"{words} {other or 'none known'}, and now {own or 'none known'}"
            return found.assign(**_NO_SPEED, why=f"a baseline of another machine: {machines}")
    return found


# --- in words and tables --------------------------------------------------------------------------


def comparison(found: pd.DataFrame, summary: pd.DataFrame, a: RunSide, b: RunSide) -> pd.DataFrame:
    """`compare_speed` with all stages in order: those without pairs stay, with the reason and no verdict.

    `summary` is the query `stage_summary` of both runs.
    """
    found = found.assign(stage=found["stage"].replace(TOTAL, WHOLE))
    side_a, side_b = (
        summary[(summary["run_id"] == run) & (summary["backend"] == backend)].set_index("stage")
        for run, backend in (a, b)
    )
    rows = side_a.merge(side_b, "outer", left_index=True, right_index=True, suffixes=("_a", "_b"))
    rows = rows.drop(index=found["stage"], errors="ignore")
    medians = {f"median_{side}": rows[f"median_{side}"].fillna(rows[f"mean_{side}"]) for side in "ab"}
    why = np.select(
        [*(medians[name].isna() for name in medians), rows[[*medians]].notna().all(axis=1)],
        ["not measured in A", "not measured in B", "no page in both"], "only a mean is recorded",
    )  # fmt: skip
    missing = pd.DataFrame(medians).assign(verdict="inconclusive", why=why).reset_index(names="stage")
    counts = dict.fromkeys(("n", "runs_a", "runs_b", "pages"), 0)
    parts = [frame for frame in (found, missing.assign(**counts)) if len(frame)]
    whole = pd.concat(parts or [found]).reindex(columns=found.columns)
    order = {stage: place for place, stage in enumerate(in_order(whole["stage"]))}
    return whole.sort_values("stage", key=lambda stages: stages.map(order), ignore_index=True)


def sentence(found: pd.DataFrame) -> str:
    """Say how B stands to A on whole pages, else in the longest stage; faster and slower with an interval.

    `found` is `comparison`, or `compare_speed`.
    """
    with_pages = found.assign(stage=found["stage"].replace(TOTAL, WHOLE))[found["pages"] > 0]
    if with_pages.empty:
        return "Not measured: no page was timed in both."
    whole = with_pages[with_pages["stage"] == WHOLE]
    row = (whole if len(whole) else with_pages.nlargest(1, "median_a")).iloc[0]
    times = f"{row['stage']} {duration(row['median_a'])} → {duration(row['median_b'])}"
    of = f"{row['runs_a']} and {row['runs_b']} runs"
    if row["verdict"] == "inconclusive":
        return f"Inconclusive, {row['why'] or f'the interval is too wide ({of})'}: {times}."
    words = f"B is {speed_ratio(row['ratio'], 1.0)}" if row["verdict"] in SURE else "B is as fast"
    return f"{words} ({significant(row['low'])} to {significant(row['high'])} of A's time; {of}): {times}."


def coverage_words(coverage: pd.DataFrame) -> str:
    """Say how many pages are in both, and why the others are not. A page that is read again is one page."""
    coverage = coverage.assign(page=coverage["page"].str.replace(COPY, "", regex=True))
    compared = set(coverage.loc[coverage["outcome"] == "compared", "page"])
    reasons = coverage[~coverage["page"].isin(compared)].drop_duplicates("page")["outcome"].value_counts()
    words = f"{len(compared):,} of {plural(coverage['page'].nunique(), 'page')} compared."
    if len(reasons):
        words += f" Left out: {', '.join(f'{count:,} {reason}' for reason, count in reasons.items())}."
    return words

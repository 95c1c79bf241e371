"""Speed of one side beside the other: of two runs, and of the runs that are like each of them.

A run is one process. What a process does to all of its pages (where its memory lies, what else runs) is no
smaller on more pages, so the draws are runs: those of one commit, machine and setting as the chosen one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.statistics import ERROR, NEUTRAL_BAND, TOTAL, Ratio, compare_runs

RunSide = tuple[str, str | None]
"""(run id, backend)"""

MOST_RUNS = 30
"""Draws of a side."""
_TOGETHER = re.compile(r", (\d+) pages together$")
LATENCY = "latency is not throughput"
CONTENDED = "other programs took the machine"
ONE_DRAFTED = "one of the two verified drafts, which decide how fast it was"
ONE_KIND = "A and B are runs of one commit, machine and setting: they differ as such runs do"


@dataclass(frozen=True)
class Pair:
    """A and B, and of each the runs that count: the chosen one and those like it."""

    a: RunSide
    b: RunSide
    runs_a: Sequence[str]
    runs_b: Sequence[str]
    one_kind: bool = False
    """True where both are of one commit, machine and setting."""

    @property
    def sides(self) -> list[tuple[str, str, str | None, bool]]:
        """(side, run, backend, chosen) of each run."""
        return [
            (name, run, backend, run == chosen)
            for name, (chosen, backend), runs in (("a", self.a, self.runs_a), ("b", self.b, self.runs_b))
            for run in runs
        ]


def compare_speed(
    history: History, a: RunSide, b: RunSide, neutral: float = NEUTRAL_BAND, contended: bool = False
) -> pd.DataFrame:
    """`statistics.compare_runs` of both sides, a row a stage and one of whole pages.

    Empty where they have no page's times in common.

    With `contended` runs beside other programs count, and drafted ones beside undrafted ones. Raises
    HistoryError.
    """
    kinds = {run: alike(history, run, contended) for run in dict.fromkeys((a[0], b[0]))}
    runs_a, runs_b = kinds[a[0]], kinds[b[0]]
    if one_kind := a[0] != b[0] and b[0] in runs_a:
        runs_a, runs_b = [a[0]], [b[0]]
    (found,) = compare_pairs(history, [Pair(a, b, runs_a, runs_b, one_kind)], neutral, contended)
    return found


def compare_pairs(
    history: History, pairs: Sequence[Pair], neutral: float = NEUTRAL_BAND, contended: bool = False
) -> list[pd.DataFrame]:
    """`compare_speed` of each pair, whose runs are known. Raises HistoryError."""
    draws, found = _with_totals(_draws(history, pairs)), []
    of_pairs = draws.groupby("pair").indices
    for number, pair in enumerate(pairs):
        of_pair = draws.iloc[of_pairs.get(number, [])]
        compared = compare_runs(of_pair, (pair.a[0], pair.b[0]), neutral)
        records = [history.record(run) for run, _ in (pair.a, pair.b)]
        why = _latency_and_throughput(*records)
        if not contended and records[0].drafted != records[1].drafted:
            why = why or ONE_DRAFTED
        if not contended and any(record.contended for record in records):
            why = why or CONTENDED
        if why:
            compared = _no_speed(compared, why)
        elif pair.one_kind:
            compared = compared.assign(why=ONE_KIND)
        found.append(compared)
    return found


def _draws(history: History, pairs: Sequence[Pair]) -> pd.DataFrame:
    """The query `draws`; `pair` is the place in `pairs`."""
    rows = [(number, *side) for number, pair in enumerate(pairs) for side in pair.sides]
    names = ("pairs", "sides", "run_ids", "backends", "chosen")
    lists = map(list, zip(*rows, strict=True))
    return history.query("draws", **dict(zip(names, lists, strict=True)))[0]


def _no_speed(found: pd.DataFrame, why: str) -> pd.DataFrame:
    return found.assign(verdict="inconclusive", ratio=math.nan, low=math.nan, high=math.nan, why=why)


@dataclass(frozen=True)
class Processes:
    """Benches of two sides, each a run of its own; `paired`: those in one place followed each other."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    backends: tuple[str, str]
    paired: bool

    def without(self, runs: set[str]) -> Processes:
        """The others; of pairs both go."""
        if self.paired:
            pairs = [pair for pair in zip(self.a, self.b, strict=True) if runs.isdisjoint(pair)]
            return replace(self, a=tuple(a for a, _ in pairs), b=tuple(b for _, b in pairs))
        a, b = (tuple(run for run in side if run not in runs) for side in (self.a, self.b))
        return replace(self, a=a, b=b)


def compare_processes(
    history: History,
    given: Processes,
    rates: Mapping[str, Mapping[str, float]],
    neutral: float = NEUTRAL_BAND,
    error: float = ERROR,
) -> pd.DataFrame:
    """`statistics.compare_runs` of benches, a row a stage, one of whole pages and one a rate.

    `rates` has by run what its process did a second, all of its pages together (`tokens/s`, `pages/s`); their
    rows are of milliseconds, as all others. Empty where a side has no run. Raises HistoryError.
    """
    if not (given.a and given.b):
        return pd.DataFrame(columns=["stage", *Ratio.__dataclass_fields__])
    a, b = given.a[0], given.b[0]
    draws = _draws(history, [Pair((a, given.backends[0]), (b, given.backends[1]), given.a, given.b)])
    pages = draws[["side", "run_id", "page"]].drop_duplicates()
    of_processes = [
        pages.assign(stage=name, ms=1000 / pages["run_id"].map({run: rates[run][name] for run in rates}))
        for name in {name for run in rates.values() for name in run}
    ]
    draws = pd.concat([_with_totals(draws), *of_processes], ignore_index=True)
    if given.paired:
        rounds = {run: str(place) for side in (given.a, given.b) for place, run in enumerate(side)}
        draws, a, b = draws.assign(run_id=draws["run_id"].map(rounds)), "0", "0"
    found = compare_runs(draws, (a, b), neutral, error)
    why = _other_machine(history.record(given.a[0]), history.record(given.b[0]))
    return _no_speed(found, why) if why else found


def _other_machine(a: RunRecord, b: RunRecord) -> str:
    """Say in what the machines of two runs differ; empty where they are one."""
    for name, words in (("gpu", "GPU"), ("host", "host"), ("device", "device")):
        before, now = (getattr(record, name) or "none known" for record in (a, b))
        if before != now:
            return f"a baseline of another machine: {words} {before}, and now {now}"
    return ""


def alike(history: History, run_id: str, contended: bool) -> list[str]:
    """The run and the newest of its commit, machine and setting. Raises HistoryError."""
    kinds, _ = history.query("kinds")
    of_kind = kinds[kinds["kind"].isin(kinds.loc[kinds["run_id"] == run_id, "kind"]) & ~kinds["trashed"]]
    found = of_kind if contended else of_kind[~of_kind["contended"]]
    return list(dict.fromkeys([run_id, *found["run_id"].head(MOST_RUNS)]))


def _latency_and_throughput(a: RunRecord, b: RunRecord) -> str:
    """Why times of two runs are no times of one thing; empty where they are."""
    found = [_TOGETHER.search(record.engine or "") for record in (a, b)]
    counts = [int(each[1]) if each else 1 for each in found]
    if counts[0] == counts[1]:
        return ""
    return f"A reads {counts[0]} and B {counts[1]} pages at a time: {LATENCY}"


def against_baseline(history: History, baseline: RunSide, backends: Mapping[str, str]) -> dict[str, Ratio]:
    """Compare whole pages of runs with those of a baseline, each with the runs like it; by run.

    `backends` has the runs and what of each counts. Those without a page in common with the baseline are left
    out, and those like it. Raises HistoryError.
    """
    backends = {**backends, baseline[0]: str(baseline[1])}
    kinds, _ = history.query("kinds")
    kinds = kinds[kinds["run_id"].isin(backends)].set_index("run_id")
    kinds["kind"] = list(zip(kinds["kind"], kinds["contended"], strict=True))
    kind, together, contended = (kinds[name].to_dict() for name in ("kind", "together", "contended"))
    totals, _ = history.query("page_totals", run_ids=list(kind))
    totals = totals[totals["backend"] == totals["run_id"].map(backends)]
    totals = totals.assign(kind=totals["run_id"].map(kind), names=totals["stages"].map("\n".join))
    own = totals[totals["kind"] == kind[baseline[0]]]
    found: dict[str, Ratio] = {}
    for _, group in totals[totals["kind"] != kind[baseline[0]]].groupby("kind"):
        both = pd.concat([own.assign(side="a"), group.assign(side="b")])
        both = both[both.groupby("page")["names"].transform("nunique") == 1]
        draws = both.rename(columns={"milliseconds": "ms"}).assign(stage=TOTAL)
        for run_id in group["run_id"].unique():
            rows = compare_runs(draws, (baseline[0], run_id)).to_dict("records")
            for row in rows:
                ratio = Ratio(**{str(name): value for name, value in row.items() if name != "stage"})
                unlike = together[run_id] != together[baseline[0]]
                if unlike or contended[run_id] or contended[baseline[0]]:
                    ratio = replace(ratio, verdict="inconclusive", ratio=math.nan)
                found[run_id] = ratio
    return found


def _with_totals(draws: pd.DataFrame) -> pd.DataFrame:
    """Draws and whole pages, where all timed the same stages of them: a sum that lacks one is no faster."""
    parts = draws[~draws["inside_prefill"].astype(bool)]
    if parts.empty:
        return draws
    # A set of stages is known by the sum of a number drawn for each: words take a thousand calls a run.
    stage, names = pd.factorize(parts["stage"])
    drawn = np.random.default_rng(0).integers(-(2**62), 2**62, len(names))
    of_page = parts.assign(stages=drawn[stage]).groupby(["pair", "side", "run_id", "page"], sort=False)
    whole = of_page[["ms", "stages"]].sum().reset_index().assign(stage=TOTAL)
    whole = whole[whole.groupby(["pair", "page"])["stages"].transform("nunique") == 1]
    return pd.concat([draws, whole], ignore_index=True)

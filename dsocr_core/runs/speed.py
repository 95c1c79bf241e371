"""Speed of one side beside the other: of two runs, and of the runs that are like each of them.

A run is one process. What a process does to all of its pages (where its memory lies, what else runs) is no
smaller on more pages, so the draws are runs: those of one commit, machine and setting as the chosen one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.statistics import NEUTRAL_BAND, TOTAL, Ratio, compare_runs
from dsocr_core.runs.store import History

RunSide = tuple[str, str | None]
"""(run id, backend)"""

_MOST_RUNS = 30
_TOGETHER = re.compile(r", (\d+) pages together$")
LATENCY = "latency is not throughput"
CONTENDED = "other programs took the machine"
ONE_DRAFTED = "one of the two verified drafts, which decide how fast it was"
ONE_KIND = "A and B are runs of one commit, machine and setting: they differ as such runs do"


def compare_speed(
    history: History, a: RunSide, b: RunSide, neutral: float = NEUTRAL_BAND, contended: bool = False
) -> pd.DataFrame:
    """`statistics.compare_runs` of both sides, a row a stage and one of whole pages.

    Empty where they have no page's times in common.

    With `contended` runs beside other programs count, and drafted ones beside undrafted ones. Raises
    HistoryError.
    """
    alike = {run: _alike(history, run, contended) for run in dict.fromkeys((a[0], b[0]))}
    runs_a, runs_b = alike[a[0]], alike[b[0]]
    if one_kind := a[0] != b[0] and b[0] in runs_a:
        runs_a, runs_b = [a[0]], [b[0]]
    draws, _ = history.query(
        "draws", run_ids=list({*runs_a, *runs_b}), runs_a=runs_a, runs_b=runs_b, a=a[0], b=b[0],
        backend_a=a[1], backend_b=b[1],
    )  # fmt: skip
    found = compare_runs(_with_totals(draws), (a[0], b[0]), neutral)
    records = [history.record(run) for run, _ in (a, b)]
    why = _latency_and_throughput(*records)
    if not contended and records[0].drafted != records[1].drafted:
        why = why or ONE_DRAFTED
    if not contended and any(record.contended for record in records):
        why = why or CONTENDED
    if why:
        return found.assign(verdict="inconclusive", ratio=math.nan, low=math.nan, high=math.nan, why=why)
    return found.assign(why=ONE_KIND) if one_kind else found


def _alike(history: History, run_id: str, contended: bool) -> list[str]:
    """The run and the newest like it."""
    found, _ = history.query("alike", run_id=run_id, contended=contended, limit=_MOST_RUNS)
    return list(dict.fromkeys([run_id, *found["run_id"]]))


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
    kinds, _ = history.query("kinds", run_ids=list(backends))
    kind, together, contended = (
        kinds.set_index("run_id")[name].to_dict() for name in ("kind", "together", "contended")
    )
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
    of_page = parts.groupby(["side", "run_id", "page"], sort=False)
    whole = of_page["ms"].sum().reset_index().assign(stage=TOTAL)
    whole["stages"] = of_page["stage"].agg(lambda names: "\n".join(sorted(names))).to_numpy()
    whole = whole[whole.groupby("page")["stages"].transform("nunique") == 1]
    return pd.concat([draws, whole], ignore_index=True)

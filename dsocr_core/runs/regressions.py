"""Changes of speed: the newest commit of every workload and setting against the commit before it, ranked.

Which commit is the baseline follows from when runs were made and how many there are, never from their times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dsocr_core.base.formatting import duration, plural, signed, significant
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import VISION, WHOLE, card_name, distinct, has_value, setting, setting_names
from dsocr_core.runs.speed import MOST_RUNS, Pair, compare_pairs
from dsocr_core.runs.statistics import FEWEST_RUNS, SURE, TOTAL

KINDS = ("slower", "look", "faster", "unchanged")
"""A confirmed slowdown, one to look at, a confirmed gain, and all else; in the order of the rows."""
LOOK_RATIO, LOOK_MS = 1.05, 0.1
"""From here on a slowdown that no interval confirms is one to look at: both have to be reached."""
STEP = 1.1
"""Ratio of two commits' rates from which on their step is marked, however few runs there are."""
_MOST_PAIRS = 60
"""Workloads and settings, those of the newest runs, that are looked at."""
SERIES = ["workload", "name", "backend", "commit", "position", "since", "run_ids", "pages_per_s"]
COLUMNS = [
    "kind", "verdict", "workload", "name", "stage", "backend", "median_a", "median_b", "times", "ratio",
    "low", "high", "lost_ms", "lost_share", "pages", "runs_a", "runs_b", "a", "b", "commits", "card", "why",
    "evidence", "trend",
]  # fmt: skip


@dataclass(frozen=True)
class Changes:
    rows: pd.DataFrame
    """COLUMNS, a row a stage of a pair: `times` is B's time over A's, confirmed or not, `ratio` the one with
    an interval, `lost_ms` how much longer B takes a page, `trend` the medians of the commits so far."""
    series: pd.DataFrame
    """SERIES, a row a workload and commit, the oldest first: its runs and their median rate."""
    marks: pd.DataFrame
    """Changes in the series: workload, position, before, after, words."""
    sql: list[str]


@dataclass
class Workload:
    """Runs of one setting and backend that read the same pages, by commit, newest first in each."""

    backend: str
    pages: frozenset[str]
    commits: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Place in the question's answer, and run."""

    def takes(self, pages: frozenset[str]) -> bool:
        """Tell whether these pages are the same work: at least half of those of either are in both."""
        return 2 * len(self.pages & pages) >= len(self.pages | pages)

    @property
    def ordered(self) -> list[tuple[str, list[str]]]:
        """Commits and their runs, the newest first.

        A commit is as new as its first run: a gate measures both in turn, and may end with the older one.
        """
        of_commits = sorted(self.commits.items(), key=lambda commit: commit[1][-1][0])
        return [(commit, [run for _, run in of]) for commit, of in of_commits]

    @property
    def pair(self) -> tuple[Pair, str] | None:
        """The newest commit as B, and both commits; A is the one before it, or the last with enough runs."""
        (commit_b, runs), *earlier = self.ordered
        if not earlier:
            return None
        enough = [of for of in earlier if min(len(of[1]), len(runs)) >= FEWEST_RUNS]
        commit_a, before = (enough or earlier)[0]
        sides = (before[0], self.backend), (runs[0], self.backend)
        return Pair(*sides, before[:MOST_RUNS], runs[:MOST_RUNS]), f"{commit_a} → {commit_b}"


def changes(history: History, runs: pd.DataFrame, contended: bool = False) -> Changes:
    """Compare the newest commit of each workload, setting and backend with its baseline, a row a stage.

    `runs` are those of the query `runs` that count. Rows are in the order of KINDS, in each the largest loss
    first, as a share of the page: of a confirmed slowdown the interval's lower end. Raises HistoryError.
    """
    settings, sql = history.query("settings", run_ids=runs["run_id"].tolist())
    works = _workloads(settings)[:_MOST_PAIRS]
    of_works = pd.DataFrame(
        [
            (number, place, commit, work.backend, run)
            for number, work in enumerate(works)
            for place, (commit, of) in enumerate(reversed(work.ordered))
            for run in of
        ],
        columns=["workload", "place", "commit", "backend", "run_id"],
    )
    run_ids = of_works["run_id"].unique().tolist()
    pace, pace_sql = history.query("pace", run_ids=run_ids)
    facts = runs.set_index("run_id").loc[run_ids].to_dict("index")
    newest: list[Any] = [facts[work.ordered[0][1][0]] for work in works]
    settings_of = [setting(run, work.backend) for run, work in zip(newest, works, strict=True)]
    short = setting_names(settings_of)
    names = distinct({number: short[each] for number, each in enumerate(settings_of)})
    series = _series(of_works.merge(pace, on=["run_id", "backend"]).dropna(subset="pages_per_s"))
    since = [facts[of[-1]]["created"] for of in series["run_ids"]]
    series = series.assign(name=series["workload"].map(names), since=since)
    rows = _rows(history, works, contended)
    if len(rows):
        cards = {number: card_name(run) for number, run in enumerate(newest)}
        rows = rows.assign(name=rows["workload"].map(names), card=rows["workload"].map(cards))
        rows = rows.assign(trend=_trends(history, of_works, rows, pace))
    marks = series[series["step"]].rename(columns={"pages_per_s": "after"})
    return Changes(rows[COLUMNS], series[SERIES], marks[_MARKS], [sql, pace_sql])


def _workloads(settings: pd.DataFrame) -> list[Workload]:
    """Sort the query `settings`, newest first, into workloads."""
    of_setting: dict[tuple[int, str], list[Workload]] = {}
    for row in settings.itertuples():
        of, pages = of_setting.setdefault((row.setting, row.backend), []), frozenset(row.pages)
        work = next((work for work in of if work.takes(pages)), None)
        if work is None:
            of.append(work := Workload(row.backend, pages))
        commit = row.git_commit[:7] + "+" * (has_value(row.git_dirty) and bool(row.git_dirty))
        work.commits.setdefault(commit, []).append((row.Index, row.run_id))
    return [work for of in of_setting.values() for work in of]


# --- rates over commits ---------------------------------------------------------------------------

_MARKS = ["workload", "position", "before", "after", "words"]


def _series(rated: pd.DataFrame) -> pd.DataFrame:
    """Pages a second of each workload's commits, medians over their runs, and where they stepped."""
    keys = ["workload", "place", "commit", "backend"]
    series = rated.groupby(keys, as_index=False).agg(
        run_ids=("run_id", list), pages_per_s=("pages_per_s", "median")
    )
    of_work = series.groupby("workload")
    before, now = of_work["pages_per_s"].shift(), series["pages_per_s"]
    runs = series["run_ids"].map(len)
    words = [
        f"{plural(int(a), 'run')} before and {b} after" if has_value(a) else ""
        for a, b in zip(runs.groupby(series["workload"]).shift(), runs, strict=True)
    ]
    step = np.maximum(before, now) >= STEP * np.minimum(before, now)
    return series.assign(position=of_work.cumcount(), before=before, words=words, step=step)


def _trends(
    history: History, of_works: pd.DataFrame, rows: pd.DataFrame, pace: pd.DataFrame
) -> list[list[float]]:
    """Medians of each row's stage over its workload's commits, the oldest first."""
    of_works = of_works[of_works["workload"].isin(rows["workload"])]
    summary, _ = history.query("stage_summary", run_ids=of_works["run_id"].tolist())
    whole = pace.assign(stage=WHOLE, median=pace["page_ms"])
    both = pd.concat([summary[["run_id", "backend", "stage", "median"]], whole], join="inner")
    medians = of_works.merge(both, on=["run_id", "backend"]).dropna(subset="median")
    of_commits = medians.groupby(["workload", "stage", "place"])["median"].median()
    lists = of_commits.groupby(level=[0, 1]).agg(list).to_dict()
    return [lists.get(key, []) for key in zip(rows["workload"], rows["stage"], strict=True)]


# --- rows of stages -------------------------------------------------------------------------------


def _rows(history: History, works: Sequence[Workload], contended: bool) -> pd.DataFrame:
    """Stages of all pairs with what B lost, in the order of their kinds."""
    found = [(number, *pair) for number, work in enumerate(works) if (pair := work.pair)]
    compared = compare_pairs(history, [pair for _, pair, _ in found], contended) if found else []
    parts = [
        each.assign(workload=number, backend=pair.b[1], a=pair.a[0], b=pair.b[0], commits=commits)
        for (number, pair, commits), each in zip(found, compared, strict=True)
    ]
    if not any(map(len, parts)):
        return pd.DataFrame(columns=COLUMNS, dtype=object)
    rows = pd.concat(parts, ignore_index=True)
    total = rows[rows["stage"] == TOTAL].set_index("workload")["median_a"]
    page_ms = rows["workload"].map(total.combine_first(rows.groupby("workload")["median_a"].max()))
    times = rows["ratio"].fillna(rows["median_b"] / rows["median_a"])
    lost = rows["median_a"] * (times - 1)
    look = (times >= LOOK_RATIO) & (lost >= LOOK_MS) & (rows["verdict"] == "inconclusive")
    kind = rows["verdict"].where(rows["verdict"].isin(SURE), np.where(look, "look", "unchanged"))
    rows = rows.assign(stage=rows["stage"].replace(TOTAL, WHOLE), times=times, lost_ms=lost, kind=kind)
    sure = rows["median_a"] * (rows["low"].where(rows["verdict"] == "slower", times) - 1)
    rows = rows.assign(
        lost_share=lost / page_ms,
        evidence=_evidence(rows),
        order=kind.map({name: place for place, name in enumerate(KINDS)}),
        by=lost.where(kind == "faster", -sure / page_ms),
    )
    return rows.sort_values(["order", "by"], kind="stable", ignore_index=True)


def _evidence(rows: pd.DataFrame) -> list[str]:
    """Write runs and pages of each row, its interval, and whether the time only moved between stages."""
    lost = rows.set_index(["workload", "stage"])["lost_ms"].to_dict()
    inner = {VISION, *INSIDE_PREFILL}
    words = []
    for row in rows.to_dict("records"):
        alone = row["runs_a"] == row["runs_b"] == 1
        of = "1 run each" if alone else f"{row['runs_a']} and {row['runs_b']} runs"
        of += f", {plural(int(row['pages']), 'page')}"
        if has_value(row["low"]):
            of += f": {significant(row['low'])} to {significant(row['high'])}x"
        parent = str(Stage.PREFILL) if row["stage"] in inner else WHOLE
        whole = lost.get((row["workload"], parent))
        # What a part gained or lost is made up for by the others: its whole hardly changed.
        part = row["kind"] in ("slower", "look") and row["stage"] != WHOLE
        if part and has_value(whole) and 2 * abs(whole) <= row["lost_ms"]:
            name = "the page" if parent == WHOLE else parent
            of += f"; {name} as a whole {signed(whole / 1e3, 's')}: moved between stages?"
        words.append(of)
    return words


def sentence(rows: pd.DataFrame, commits: str, card: str) -> str:
    """Say what changed between two commits on a card: what is confirmed, and how many rows to look at."""
    slower, look, faster = (rows[rows["kind"] == kind] for kind in KINDS[:3])
    words = "no confirmed slowdown"
    if len(slower):
        first = slower.iloc[0]
        words = (
            f"{first['name']} is confirmed {significant(first['ratio'])}x slower in {first['stage']}, "
            f"{duration(first['median_a'])} → {duration(first['median_b'])}"
        )
        words += f", and {plural(len(slower) - 1, 'other stage')} with it" * (len(slower) > 1)
    words += f". {len(look)} to look at" * (len(look) > 0)
    words += f". {plural(len(faster), 'stage')} confirmed faster" * (len(faster) > 0)
    return f"{commits} on {card}: {words}."

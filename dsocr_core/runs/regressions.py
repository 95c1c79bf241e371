"""Changes of speed: the newest commit of every workload and setting against the commit before it, ranked.

Which commit is the baseline follows from when runs were made and how many there are, never from their times.
"""

from __future__ import annotations

from dataclasses import dataclass
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
STEP = 1.1  # ratio of two commits' rates from which on their step is marked, however few runs there are
_MOST_PAIRS = 60  # workloads and settings, those of the newest runs, that are looked at
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
    """A row a workload and commit, the oldest first: run_ids and their median pages_per_s, the one before,
    and where it is a step from that, the words of it."""
    sql: list[str]


def changes(history: History, runs: pd.DataFrame, contended: bool = False) -> Changes:
    """Compare the newest commit of each workload, setting and backend with its baseline, a row a stage.

    `runs` are those of the query `runs` that count. Rows are in the order of KINDS, in each the largest loss
    first, as a share of the page: of a confirmed slowdown the interval's lower end. Raises HistoryError.
    """
    settings, sql = history.query("settings", run_ids=runs["run_id"].tolist())
    works = _workloads(settings)
    run_ids = works["run_id"].unique().tolist()
    pace, pace_sql = history.query("pace", run_ids=run_ids)
    facts = runs.set_index("run_id").loc[run_ids].to_dict("index")
    newest = works.drop_duplicates("workload").set_index("workload")[["run_id", "backend"]]
    of_runs: dict[Any, Any] = {work: facts[run] for work, run in newest["run_id"].items()}
    settings_of = {work: setting(run, newest.loc[work, "backend"]) for work, run in of_runs.items()}
    short = setting_names(settings_of.values())
    names = distinct({work: short[each] for work, each in settings_of.items()})
    series = _series(works.merge(pace, on=["run_id", "backend"]).dropna(subset="pages_per_s"))
    since = [facts[of[-1]]["created"] for of in series["run_ids"]]
    series = series.assign(name=series["workload"].map(names), since=since)
    rows = _rows(history, works, contended)
    if len(rows):
        cards = {work: card_name(run) for work, run in of_runs.items()}
        rows = rows.assign(name=rows["workload"].map(names), card=rows["workload"].map(cards))
        rows = rows.assign(trend=_trends(history, works, rows, pace))
    return Changes(rows[COLUMNS], series, [sql, pace_sql])


def _workloads(settings: pd.DataFrame) -> pd.DataFrame:
    """The rows of the query `settings`, newest first, by workload and `place` of its commit, the oldest 0.

    A workload is of one setting and backend and of the same pages: at least half of either's are in both. A
    commit is as new as its first run: a gate measures both in turn, and may end with the older one.
    """
    works: list[tuple[tuple[Any, str], frozenset[str]]] = []
    numbers = []
    for row in settings.itertuples():
        of, pages = (row.setting, row.backend), frozenset(row.pages)
        same = (
            n
            for n, (other, read) in enumerate(works)
            if other == of and 2 * len(read & pages) >= len(read | pages)
        )
        if (number := next(same, None)) is None:
            number = len(works)
            works.append((of, pages))
        numbers.append(number)
    dirty = settings["git_dirty"].astype("boolean").fillna(False)
    commits = settings["git_commit"].str[:7] + np.where(dirty, "+", "")
    found = settings[["backend", "run_id"]].assign(workload=numbers, commit=commits, age=range(len(settings)))
    found = found[found["workload"] < _MOST_PAIRS]
    age = found.groupby(["workload", "commit"])["age"].transform("max")
    place = age.groupby(found["workload"]).rank("dense", ascending=False).astype(int)
    return found.assign(place=place - 1).sort_values(["workload", "place", "age"], ignore_index=True)


_COMMIT = ["workload", "place", "commit", "backend"]


def _pairs(works: pd.DataFrame) -> dict[Any, tuple[Pair, str]]:
    """By workload the newest commit as B with the one before, or the last with enough runs; their names."""
    pairs = {}
    commits = works.groupby(_COMMIT, as_index=False)["run_id"].agg(list)
    for work, of in commits.groupby("workload"):
        *earlier, (commit_b, runs_b) = zip(of["commit"], of["run_id"], strict=True)
        enough = [each for each in earlier if min(len(each[1]), len(runs_b)) >= FEWEST_RUNS]
        for commit_a, runs_a in (enough or earlier)[-1:]:
            a, b = ((runs[0], of["backend"].iloc[0]) for runs in (runs_a, runs_b))
            pair = Pair(a, b, runs_a[:MOST_RUNS], runs_b[:MOST_RUNS])
            pairs[work] = pair, f"{commit_a} → {commit_b}"
    return pairs


# --- rates over commits ---------------------------------------------------------------------------


def _series(rated: pd.DataFrame) -> pd.DataFrame:
    """Pages a second of each workload's commits, medians over their runs, and where they stepped."""
    series = rated.groupby(_COMMIT, as_index=False).agg(
        run_ids=("run_id", list), pages_per_s=("pages_per_s", "median")
    )
    series["runs"] = series["run_ids"].map(len)
    of_work = series.groupby("workload")
    before = of_work["pages_per_s"].shift()
    now, runs_before = series["pages_per_s"], of_work["runs"].shift().fillna(0).astype(int)
    step = np.maximum(before, now) >= STEP * np.minimum(before, now)
    words = [
        f"{plural(a, 'run')} before and {b} after" if is_step else None
        for a, b, is_step in zip(runs_before, series["runs"], step, strict=True)
    ]
    return series.assign(position=of_work.cumcount(), before=before, words=words)


def _trends(
    history: History, works: pd.DataFrame, rows: pd.DataFrame, pace: pd.DataFrame
) -> list[list[float]]:
    """Medians of each row's stage over its workload's commits, the oldest first."""
    works = works[works["workload"].isin(rows["workload"])]
    summary, _ = history.query("stage_summary", run_ids=works["run_id"].tolist())
    whole = pace.assign(stage=WHOLE, median=pace["page_ms"])
    both = pd.concat([summary[["run_id", "backend", "stage", "median"]], whole], join="inner")
    medians = works.merge(both, on=["run_id", "backend"]).dropna(subset="median")
    of_commits = medians.groupby(["workload", "stage", "place"])["median"].median()
    lists = of_commits.groupby(level=[0, 1]).agg(list).to_dict()
    return [lists.get(key, []) for key in zip(rows["workload"], rows["stage"], strict=True)]


# --- rows of stages -------------------------------------------------------------------------------


def _rows(history: History, works: pd.DataFrame, contended: bool) -> pd.DataFrame:
    """Stages of all pairs with what B lost, in the order of their kinds."""
    pairs = _pairs(works)
    compared = compare_pairs(history, [pair for pair, _ in pairs.values()], contended) if pairs else []
    parts = [
        each.assign(workload=work, backend=pair.b[1], a=pair.a[0], b=pair.b[0], commits=commits)
        for (work, (pair, commits)), each in zip(pairs.items(), compared, strict=True)
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
        lost_share=lost / page_ms, evidence=_evidence(rows), order=kind.map(KINDS.index),
        by=lost.where(kind == "faster", -sure / page_ms),
    )  # fmt: skip
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
    for first in slower.head(1).to_dict("records"):
        words = (
            f"{first['name']} is confirmed {significant(first['ratio'])}x slower in {first['stage']}, "
            f"{duration(first['median_a'])} → {duration(first['median_b'])}"
        )
        words += f", and {plural(len(slower) - 1, 'other stage')} with it" * (len(slower) > 1)
    words += f". {len(look)} to look at" * (len(look) > 0)
    words += f". {plural(len(faster), 'stage')} confirmed faster" * (len(faster) > 0)
    return f"{commits} on {card}: {words}."

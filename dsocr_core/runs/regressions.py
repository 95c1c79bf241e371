"""Regressions: the newest commit of every workload and setting beside the commit before it, ranked.

Which commit is the baseline follows from when runs were made and how many there are, never from their times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from dsocr_core.runs.history import History
from dsocr_core.runs.labels import CONDITION, condition
from dsocr_core.runs.speed import MOST_RUNS, Pair, compare_pairs
from dsocr_core.runs.statistics import FEWEST_RUNS, NEUTRAL_BAND, TOTAL
from dsocr_core.runs.timings import WHOLE

OUTCOMES = ("slower", "inconclusive", "within", "faster")
"""In the order in which they are listed."""
_MOST_PAIRS = 60
"""Workloads and settings, those of the newest runs, that are looked at."""
COLUMNS = [
    "verdict", "stage", "backend", "under", "median_a", "median_b", "ratio", "low", "high", "lost_ms",
    "lost_share", "pages", "runs_a", "runs_b", "a", "b", "commit_a", "commit_b", "why",
]  # fmt: skip


def regressions(
    history: History, runs: pd.DataFrame, neutral: float = NEUTRAL_BAND, contended: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Compare the newest commit of each workload, setting and backend with its baseline, a row a stage.

    `runs` are those of the query `runs` that count. Columns are COLUMNS: `a` and `b` are run ids, `lost_ms`
    is how much longer B takes a page, `lost_share` that of A's whole page. Sorted by outcome as in OUTCOMES;
    of one outcome by the loss that is sure, the interval's lower end, as a share of the page; inconclusive
    ones by the loss that is possible, its upper end, and without an interval by the loss. With the SQL of the
    question. Raises HistoryError.
    """
    settings, sql = history.query("settings", run_ids=runs["run_id"].tolist())
    pairs = [pair for work in _workloads(settings)[:_MOST_PAIRS] if (pair := work.pair)]
    if not pairs:
        return pd.DataFrame(columns=COLUMNS), [sql]
    found = dict(enumerate(compare_pairs(history, pairs, neutral, contended)))
    rows = pd.concat(found, names=["pair"]).reset_index("pair")
    if rows.empty:
        return pd.DataFrame(columns=COLUMNS), [sql]
    return _ranked(rows.merge(_of_pairs(pairs, rows, runs), on="pair")), [sql]


@dataclass
class _Workload:
    """Runs of one setting and backend that read the same pages, by commit, newest first in each."""

    backend: str | None
    pages: frozenset[str]
    commits: dict[tuple[str, bool], list[tuple[int, str]]] = field(default_factory=dict)
    """Place in the question's answer, and run."""

    def takes(self, pages: frozenset[str]) -> bool:
        """Tell whether these pages are the same work: at least half of those of either are in both."""
        return 2 * len(self.pages & pages) >= len(self.pages | pages)

    @property
    def pair(self) -> Pair | None:
        """The newest commit as B; A is the one before it, or the last that has as many runs as it takes.

        A commit is as new as its first run: a gate measures both in turn, and may end with the older one.
        """
        of_commits = sorted(self.commits.values(), key=lambda runs: runs[-1][0])
        runs, *earlier = ([run for _, run in of] for of in of_commits)
        if not earlier:
            return None
        enough = [of for of in earlier if len(of) >= FEWEST_RUNS] if len(runs) >= FEWEST_RUNS else []
        before = (enough or earlier)[0]
        return Pair((before[0], self.backend), (runs[0], self.backend), before[:MOST_RUNS], runs[:MOST_RUNS])


def _workloads(settings: pd.DataFrame) -> list[_Workload]:
    """Sort the query `settings`, newest first, into workloads."""
    of_setting: dict[tuple[int, str], list[_Workload]] = {}
    for row in settings.itertuples():
        known = of_setting.setdefault((row.setting, row.backend), [])
        pages = frozenset(row.pages)
        work = next((work for work in known if work.takes(pages)), None)
        if work is None:
            known.append(work := _Workload(row.backend, pages))
        work.commits.setdefault((row.git_commit, row.git_dirty), []).append((row.Index, row.run_id))
    return [work for known in of_setting.values() for work in known]


def _of_pairs(pairs: Sequence[Pair], rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Facts of all rows of a pair, a row each: its runs, and the milliseconds of A's page."""
    ids = {run for pair in pairs for run in (pair.a[0], pair.b[0])}
    known = runs.loc[runs["run_id"].isin(ids), ["run_id", "git_commit", *CONDITION]]
    facts = known.set_index("run_id").to_dict("index")
    total = rows[rows["stage"] == TOTAL].set_index("pair")["median_a"]
    page_ms = total.combine_first(rows.groupby("pair")["median_a"].max())
    return pd.DataFrame(
        [
            {
                "pair": number, "backend": pair.b[1], "under": condition(facts[pair.b[0]]),
                "a": pair.a[0], "b": pair.b[0], "commit_a": facts[pair.a[0]]["git_commit"],
                "commit_b": facts[pair.b[0]]["git_commit"], "page_ms": page_ms.get(number),
            }
            for number, pair in enumerate(pairs)
        ]
    )  # fmt: skip


def _ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what B lost, in their order."""
    before, page_ms = rows["median_a"], rows["page_ms"]
    lost = (before * (rows["ratio"] - 1)).fillna(rows["median_b"] - before)
    end = rows["low"].where(rows["verdict"] != "inconclusive", rows["high"])
    sure = (end - 1) * before / page_ms
    rows = rows.assign(
        stage=rows["stage"].replace(TOTAL, WHOLE),
        lost_ms=lost,
        lost_share=lost / page_ms,
        order=rows["verdict"].map({outcome: place for place, outcome in enumerate(OUTCOMES)}),
        without=sure.isna(),
        by=-sure.fillna(lost / page_ms),
    )
    return rows.sort_values(["order", "without", "by"], kind="stable", ignore_index=True)[COLUMNS]


def counts(rows: pd.DataFrame) -> dict[str, int]:
    """Number the rows of each outcome, in the order of OUTCOMES."""
    found = rows["verdict"].value_counts()
    return {outcome: int(found.get(outcome, 0)) for outcome in OUTCOMES}

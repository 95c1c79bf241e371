"""What became slower: which runs are set against each other, and in which order."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.labels import WHOLE
from dsocr_core.runs.regressions import changes, sentence
from dsocr_core.runs.speed import compare_speed
from dsocr_core.runs.statistics import TOTAL
from tests.support.timed_history import BASE_MS, paced, record, write

SLOW = {"decode": 1.08, "sam": 1.5, "tokenizer": 3.0}
OTHER_PAGES = [f"other-{number}.png" for number in range(12)]


def commit(root: Path, name: str, day: float, runs: int, factors: dict[str, float], **fields: object) -> None:
    pages = fields.pop("pages", None)
    for number in range(runs):
        made = record(f"{name}-{number}", day + number / 10, git_commit=name.ljust(40, "0"), **fields)
        write(root, made, paced(hash_of(made.id), factors, **({"pages": pages} if pages else {})))


def hash_of(name: str) -> int:
    return sum(map(ord, name)) * 7


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A slower commit on one card, the same commits on another without a change, and what is no pair."""
    root = tmp_path_factory.mktemp("history")
    commit(root, "older", 1, 3, {})
    commit(root, "alone", 2, 1, dict.fromkeys(BASE_MS, 0.5))  # one process: no draws
    commit(root, "slow", 3, 3, SLOW)
    commit(root, "pages", 4, 3, dict.fromkeys(BASE_MS, 9.0), pages=OTHER_PAGES)
    commit(root, "h100old", 1, 3, {}, gpu="NVIDIA H100 80GB HBM3")
    commit(root, "h100new", 2, 3, {"prefill": 1 / 1.2}, gpu="NVIDIA H100 80GB HBM3")
    commit(root, "single", 1, 1, {}, preset="base")
    commit(root, "twice", 2, 1, dict.fromkeys(BASE_MS, 2.0), preset="base")
    commit(root, "nobody", 3, 1, {}, preset="small")
    return History(root)


@pytest.fixture(scope="module")
def found(history: History) -> pd.DataFrame:
    return changes(history, history.runs(profiled=False, contended=False)).rows


def test_the_newest_commit_stands_against_the_last_one_that_can_answer(found: pd.DataFrame) -> None:
    pairs = found.groupby("name")[["a", "b"]].agg(lambda ids: "".join(sorted({i.split("-")[0] for i in ids})))
    assert dict(zip(pairs.index, pairs.to_numpy().tolist(), strict=True)) == {
        "fast on H200, gundam (2)": ["older", "slow"],  # not `alone`, of one process, nor other pages
        "fast on H100 80GB HBM3": ["h100old", "h100new"],
        "fast on H200, base": ["single", "twice"],  # nothing better is there: it says so
    }


def test_what_was_surely_lost_comes_first(found: pd.DataFrame) -> None:
    slower = found[found["kind"] == "slower"]
    # Of a page of 1,996 ms at base: 144 of decode, 30 of sam, 2 of the tokenizer.
    assert slower["stage"].tolist() == [WHOLE, "decode", "sam", "tokenizer"]
    decode = slower.set_index("stage").loc["decode"]
    assert decode["lost_ms"] == pytest.approx(0.08 * 1800 * 1.15, rel=0.05)
    assert decode["lost_share"] == pytest.approx(0.08 * 1800 / 1996, rel=0.05)
    assert decode["evidence"].startswith("3 and 3 runs, 12 pages: 1.0")
    assert found["kind"].drop_duplicates().tolist() == ["slower", "look", "faster", "unchanged"]
    assert found.loc[found["kind"] == "faster", "stage"].tolist() == ["prefill"]
    assert len(found) == 3 * (len(BASE_MS) + 1)
    commits = found[found["commits"] == "older00 → slow000"]
    said = sentence(commits, "older00 → slow000", "H200")
    assert said.startswith("older00 → slow000 on H200: fast on H200, gundam (2) is confirmed 1.0")
    assert said.endswith("and 3 other stages with it.")


def test_a_commit_of_one_process_is_never_confirmed_however_slow_it_was(found: pd.DataFrame) -> None:
    twice = found[found["name"].str.endswith("base")]
    assert set(twice["verdict"]) == {"inconclusive"} and twice["low"].isna().all()
    assert set(twice["kind"]) == {"look"} and twice["times"].tolist() == pytest.approx([2.0] * 10, rel=0.1)
    assert twice["evidence"].str.startswith("1 run each, 12 pages").all()
    assert twice["lost_ms"].is_monotonic_decreasing
    said = sentence(twice, "single0 → twice00", "H200")
    assert said == "single0 → twice00 on H200: no confirmed slowdown. 10 to look at."


def test_each_row_is_what_the_pair_alone_says(history: History, found: pd.DataFrame) -> None:
    for (a, b, backend), rows in found.groupby(["a", "b", "backend"]):
        alone = compare_speed(history, (a, backend), (b, backend)).set_index("stage")
        mine = rows.assign(stage=rows["stage"].replace(WHOLE, TOTAL)).set_index("stage").loc[alone.index]
        columns = ["verdict", "ratio", "low", "high", "runs_a", "runs_b", "pages", "median_a", "median_b"]
        pd.testing.assert_frame_equal(mine[columns], alone[columns])


def test_a_gate_that_ends_with_the_older_commit_is_not_turned_round(tmp_path: Path) -> None:
    order = ("before", "after", "after", "before")
    for number, name in enumerate(order):
        made = record(f"{name}-{number}", number, git_commit=name.ljust(40, "0"))
        write(tmp_path, made, paced(number, {"decode": 1.2} if name == "after" else {}))
    history = History(tmp_path)
    rows = changes(history, history.runs()).rows.set_index("stage")
    assert rows.loc["decode", ["a", "b", "verdict"]].tolist() == ["before-3", "after-2", "slower"]


def test_time_that_moved_between_stages_says_so(tmp_path: Path) -> None:
    """Of prefill's 150 ms sam takes 20 more and clip 19 less: a clock moved."""
    commit(tmp_path, "before", 1, 1, {})
    commit(tmp_path, "moved", 2, 1, {"sam": 80 / 60, "clip": 1 / 20, "decode": 1.2})
    history = History(tmp_path)
    said = changes(history, history.runs()).rows.set_index("stage")["evidence"]
    assert "prefill as a whole" in said["sam"] and said["sam"].endswith("moved between stages?")
    assert "moved" not in said["decode"]  # the page is as much longer


def test_rates_over_commits_name_steps(tmp_path: Path) -> None:
    factors = [1.0] * 2 + [0.95] * 2 + [1.3]
    for number, factor in enumerate(factors):
        commit(tmp_path, f"c{number:02d}", number, 1, dict.fromkeys(BASE_MS, factor))
    commit(tmp_path, "other", 20, 1, {}, preset="base")
    with History(tmp_path) as history:
        found = changes(history, history.runs())
        page_ms = history.query("pace")[0].set_index("run_id")["page_ms"]
    assert found.series["name"].value_counts().to_dict() == {
        "fast on H200, gundam": 5, "fast on H200, base": 1,
    }  # fmt: skip
    assert sorted(found.series["position"]) == [0, *range(5)]
    (step,) = found.marks.to_dict("records")
    assert step["after"] / step["before"] == pytest.approx(0.95 / 1.3, rel=0.02)
    assert step["position"] == 4 and step["words"] == "1 run before and 1 after"
    trend = found.rows.set_index("stage")["trend"][WHOLE]
    assert trend == pytest.approx([page_ms[f"c{number:02d}-0"] for number in range(5)])


def test_a_history_without_a_pair_has_none(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert changes(history, history.runs()).rows.empty
    write(tmp_path, record("only", 1), paced(1))
    history.refresh()
    found = changes(history, history.runs())
    assert found.rows.empty and len(found.series) == 1

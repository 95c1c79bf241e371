"""What became slower: which runs are set against each other, and in which order."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.regressions import counts, regressions
from dsocr_core.runs.speed import compare_speed
from dsocr_core.runs.statistics import TOTAL
from dsocr_core.runs.timings import WHOLE
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
    return regressions(history, history.runs(profiled=False, contended=False))[0]


def test_the_newest_commit_stands_against_the_last_one_that_can_answer(found: pd.DataFrame) -> None:
    pairs = found.groupby("under")[["a", "b"]].agg(
        lambda ids: "".join(sorted({i.split("-")[0] for i in ids}))
    )
    assert dict(zip(pairs.index, pairs.to_numpy().tolist(), strict=True)) == {
        "H200, fast, bf16, flash, gundam": ["older", "slow"],  # not `alone`, of one process, nor other pages
        "H100 80GB HBM3, fast, bf16, flash, gundam": ["h100old", "h100new"],
        "H200, fast, bf16, flash, base": ["single", "twice"],  # nothing better is there: it says so
    }


def test_what_was_surely_lost_comes_first(found: pd.DataFrame) -> None:
    slower = found[found["verdict"] == "slower"]
    # Of a page of 1,996 ms at base: 144 of decode, 30 of sam, 2 of the tokenizer.
    assert slower["stage"].tolist() == [WHOLE, "decode", "sam", "tokenizer"]
    decode = slower.set_index("stage").loc["decode"]
    assert decode["lost_ms"] == pytest.approx(0.08 * 1800 * 1.15, rel=0.05)
    assert decode["lost_share"] == pytest.approx(0.08 * 1800 / 1996, rel=0.05)
    outcomes = found["verdict"].drop_duplicates().tolist()
    assert outcomes == ["slower", "inconclusive", "within", "faster"]
    assert found.loc[found["verdict"] == "faster", "stage"].tolist() == ["prefill"]
    assert counts(found)["slower"] == 4 and sum(counts(found).values()) == len(found) == 3 * (
        len(BASE_MS) + 1
    )


def test_a_commit_of_one_process_is_inconclusive_however_slow_it_was(found: pd.DataFrame) -> None:
    twice = found[found["under"].str.endswith("base")]
    assert set(twice["verdict"]) == {"inconclusive"} and twice["low"].isna().all()
    assert twice["why"].str.startswith("one run a side").all()
    assert twice["lost_ms"].is_monotonic_decreasing


def test_each_row_is_what_the_pair_alone_says(history: History, found: pd.DataFrame) -> None:
    for (a, b, backend), rows in found.groupby(["a", "b", "backend"]):
        alone = compare_speed(history, (a, backend), (b, backend)).set_index("stage")
        mine = rows.assign(stage=rows["stage"].replace(WHOLE, TOTAL)).set_index("stage").loc[alone.index]
        columns = ["verdict", "ratio", "low", "high", "runs_a", "runs_b", "pages"]
        pd.testing.assert_frame_equal(mine[columns], alone[columns])


def test_a_gate_that_ends_with_the_older_commit_is_not_turned_round(tmp_path: Path) -> None:
    order = ("before", "after", "after", "before")
    for number, name in enumerate(order):
        made = record(f"{name}-{number}", number, git_commit=name.ljust(40, "0"))
        write(tmp_path, made, paced(number, {"decode": 1.2} if name == "after" else {}))
    history = History(tmp_path)
    found = regressions(history, history.runs())[0].set_index("stage")
    assert found.loc["decode", ["a", "b", "verdict"]].tolist() == ["before-3", "after-2", "slower"]


def test_a_history_without_a_pair_has_none(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert regressions(history, history.runs())[0].empty
    write(tmp_path, record("only", 1), paced(1))
    history.refresh()
    assert regressions(history, history.runs())[0].empty

"""Speeds over recorded runs: what counts as like a run, what is no speed at all, and what became slower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsocr_core.reading.parity import Comparison
from dsocr_core.runs import speed
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import WHOLE, setting
from dsocr_core.runs.record import Recording
from dsocr_core.runs.regressions import changes, sentence
from dsocr_core.runs.settings_diff import FIELDS, side_by_side
from dsocr_core.runs.speed import CONTENDED, LATENCY, ONE_DRAFTED, ONE_KIND, compare_speed
from dsocr_core.runs.statistics import TOTAL
from dsocr_core.settings import Settings
from tests.support.results import make_result
from tests.support.timed_history import BASE_MS, PAGES, paced, record, write

OTHER_PAGES = [f"other-{number}.png" for number in range(12)]
CONTENDED_RUN = {"environment": {"machine": {"contended": True}}}
H100 = {"gpu": "NVIDIA H100 80GB HBM3"}


def every(factor: float) -> dict[str, float]:
    return dict.fromkeys(BASE_MS, factor)


def commit(
    root: Path, name: str, day: float, runs: int, factors: Mapping[str, float] = {},
    pages: Sequence[str] = PAGES, **fields: Any,
) -> None:  # fmt: skip
    """Runs NAME-0, NAME-1 ... of one commit."""
    for number in range(runs):
        made = record(f"{name}-{number}", day + number / 10, **{"git_commit": name.ljust(40, "0"), **fields})
        write(root, made, paced(sum(map(ord, made.id)) * 7, factors, pages=pages))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A slower commit on one card, the same commits on another without a change, and what is no pair."""
    root = tmp_path_factory.mktemp("history")
    commit(root, "older", 1, 3)
    commit(root, "alone", 2, 1, every(0.5))  # one process: no draws
    commit(root, "slow", 3, 3, {"decode": 1.08, "sam": 1.5, "tokenizer": 3.0})
    commit(root, "pages", 4, 3, every(9.0), pages=OTHER_PAGES)
    commit(root, "h100old", 1, 3, **H100)
    commit(root, "h100new", 2, 3, {"prefill": 1 / 1.2}, **H100)
    commit(root, "single", 1, 1, preset="base")
    commit(root, "twice", 2, 1, every(2.0), preset="base")
    commit(root, "nobody", 3, 1, preset="small")
    commit(root, "busy", 2.5, 1, git_commit="slow".ljust(40, "0"), **CONTENDED_RUN)
    commit(root, "elsewhere", 2, 1, host="lab-2")
    commit(root, "together", 2, 1, engine="fast, 256 pages together")
    commit(root, "unknown", 2, 1, git_commit=None)
    less = {key: spent for key, spent in paced(300).items() if key[2] != "decode" or key[0] != PAGES[0]}
    write(root, record("less", 0, git_commit=None), less)
    with History(root) as opened:
        yield opened


@pytest.fixture(scope="module")
def found(history: History) -> pd.DataFrame:
    runs = history.runs(profiled=False, contended=False)
    return changes(history, runs[~runs["run_id"].str.match("less|elsewhere|together|unknown")]).rows


# --- of two runs ----------------------------------------------------------------------------------


def total(history: History, a: str, b: str, contended: bool = False) -> pd.Series:
    compared = compare_speed(history, (a, "fast"), (b, "fast"), contended=contended).set_index("stage")
    assert compared.index[-1] == TOTAL
    return compared.loc[TOTAL]


def test_runs_of_one_commit_machine_and_setting_are_counted(history: History) -> None:
    there = total(history, "older-1", "slow-0")
    assert there[["runs_a", "runs_b", "pages", "verdict"]].tolist() == [3, 3, 12, "slower"]
    assert 1.06 < there["ratio"] < 1.13 and total(history, "slow-0", "older-1")["verdict"] == "faster"
    assert total(history, "older-0", "busy-0", contended=True)["runs_b"] == 4  # with those that were not
    assert total(history, "older-0", "less")["pages"] == 11  # a page without its decode is no page as a whole


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("older-0", "older-2", ONE_KIND), ("older-0", "busy-0", CONTENDED),
        ("older-0", "together-0", LATENCY), ("older-0", "elsewhere-0", "one run of B"),
        ("unknown-0", "elsewhere-0", "one run a side"),
    ],
)  # fmt: skip
def test_what_is_no_speed_is_inconclusive_and_says_why(history: History, a: str, b: str, why: str) -> None:
    row = total(history, a, b)
    assert row["verdict"] == "inconclusive" and why in row["why"]
    assert pd.isna(row["ratio"]), "no ratio of one process"


def test_a_drafted_run_with_an_undrafted_one_is_no_speed_unless_asked_for(tmp_path: Path) -> None:
    names = []
    for environment in ({}, {"draft": "text-layer"}):
        result = replace(make_result(backend="fast"), environment={"engine": "fast", **environment})
        with Recording(Settings(engine="fast", history=str(tmp_path))) as recorder:
            recorder.add("page.png", Comparison(result.request, result))
        names.append((str(recorder.id), "fast"))
    with History(tmp_path) as history:
        assert [history.record(run).engine for run, _ in names] == ["fast", "fast, with drafts"]
        for asked in (False, True):
            why = compare_speed(history, *names, contended=asked)["why"]
            assert (set(why) == {ONE_DRAFTED}) == (not asked)


def test_a_page_that_was_read_again_is_one_page() -> None:
    copies = [f"p{page}{copy}" for page in range(2) for copy in ("", " #2", " #3")]
    coverage = pd.DataFrame({"page": [*copies, "q"], "outcome": ["compared"] * 6 + ["not in A"]})
    assert speed.coverage_words(coverage) == "2 of 3 pages compared. Left out: 1 not in A."


def test_settings_as_asked_are_not_compared_with_what_they_came_to() -> None:
    facts = pd.DataFrame(
        [("a", "settings", "dtype", "auto"), ("b", "settings", "dtype", "float32"),
         ("a", "settings", "pdf_dpi", "150"), ("b", "settings", "pdf_dpi", "72")],
        columns=["run_id", "section", "name", "value"],
    )  # fmt: skip
    runs = pd.DataFrame({"run_id": ["a", "b"], **dict.fromkeys(FIELDS)})
    found = side_by_side(runs, facts, ["a", "b"])
    assert found.loc[found["differs"].astype(bool), "name"].tolist() == ["pdf_dpi"]


@pytest.mark.parametrize(
    ("engine", "backends"), [("eager", ["eager", "vendor"]), ("endpoint plain", ["endpoint", "endpoint-2"])]
)
def test_a_second_backend_does_not_have_the_dtype_of_the_run(engine: str, backends: list[str]) -> None:
    """F9: the vendor's row said bf16; it ran float32."""
    run = {"engine": engine, "device": "cpu", "dtype": "bfloat16", "attention": "sdpa", "backends": backends}
    assert [setting(run, each)[3:5] for each in backends] == [("bf16", "sdpa"), ("", "")]


# --- what became slower ---------------------------------------------------------------------------


def test_the_newest_commit_stands_against_the_last_one_that_can_answer(
    history: History, found: pd.DataFrame
) -> None:
    pairs = found.groupby("name")[["a", "b"]].agg(lambda ids: "".join(sorted({i.split("-")[0] for i in ids})))
    assert dict(zip(pairs.index, pairs.to_numpy().tolist(), strict=True)) == {
        "fast on H200, gundam (2)": ["older", "slow"],  # not `alone`, of one process, nor other pages
        "fast on H100 80GB HBM3": ["h100old", "h100new"],
        "fast on H200, base": ["single", "twice"],  # nothing better is there: it says so
    }
    for (a, b, backend), rows in found.groupby(["a", "b", "backend"]):  # each row is what the pair alone says
        alone = compare_speed(history, (a, backend), (b, backend)).set_index("stage")
        mine = rows.assign(stage=rows["stage"].replace(WHOLE, TOTAL)).set_index("stage").loc[alone.index]
        columns = ["verdict", "ratio", "low", "high", "runs_a", "runs_b", "pages", "median_a", "median_b"]
        pd.testing.assert_frame_equal(mine[columns], alone[columns])


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
    said = sentence(found[found["commits"] == "older00 → slow000"], "older00 → slow000", "H200")
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


def test_a_gate_that_ends_with_the_older_commit_is_not_turned_round(tmp_path: Path) -> None:
    for day, name in enumerate(("before", "after", "after", "before")):
        commit(tmp_path, f"{name}{day}", day, 1, {"decode": 1.2} if name == "after" else {}, git_commit=name)
    with History(tmp_path) as history:
        rows = changes(history, history.runs()).rows.set_index("stage")
    assert rows.loc["decode", ["a", "b", "verdict"]].tolist() == ["before3-0", "after2-0", "slower"]


def test_time_that_moved_between_stages_says_so(tmp_path: Path) -> None:
    """Of prefill's 150 ms sam takes 20 more and clip 19 less: a clock moved."""
    commit(tmp_path, "before", 1, 1)
    commit(tmp_path, "moved", 2, 1, {"sam": 80 / 60, "clip": 1 / 20, "decode": 1.2})
    with History(tmp_path) as history:
        said = changes(history, history.runs()).rows.set_index("stage")["evidence"]
    assert "prefill as a whole" in said["sam"] and said["sam"].endswith("moved between stages?")
    assert "moved" not in said["decode"]  # the page is as much longer


def test_rates_over_commits_name_steps_and_a_history_without_a_pair_has_none(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        assert changes(history, history.runs()).rows.empty
        commit(tmp_path, "other", 20, 1, preset="base")
        history.refresh()
        alone = changes(history, history.runs())
        assert alone.rows.empty and len(alone.series) == 1
        for number, factor in enumerate((1.0, 1.0, 0.95, 0.95, 1.3)):
            commit(tmp_path, f"c{number:02d}", number, 1, every(factor))
        history.refresh()
        found = changes(history, history.runs())
        page_ms = history.query("pace")[0].set_index("run_id")["page_ms"]
    assert found.series["name"].value_counts().to_dict() == {
        "fast on H200, gundam": 5, "fast on H200, base": 1,
    }  # fmt: skip
    (step,) = found.series.dropna(subset="words").to_dict("records")
    assert step["pages_per_s"] / step["before"] == pytest.approx(0.95 / 1.3, rel=0.02)
    assert step["position"] == 4 and step["words"] == "1 run before and 1 after"
    trend = found.rows.set_index("stage")["trend"][WHOLE]
    assert trend == pytest.approx([page_ms[f"c{number:02d}-0"] for number in range(5)])

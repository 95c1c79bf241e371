"""Speeds over recorded runs: what counts as like a run, and what is no speed at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.reading.parity import Comparison
from dsocr_core.runs.history import History
from dsocr_core.runs.record import Recording
from dsocr_core.runs.speed import CONTENDED, LATENCY, ONE_DRAFTED, ONE_KIND, against_baseline, compare_speed
from dsocr_core.runs.statistics import TOTAL
from dsocr_core.settings import Settings
from tests.support.results import make_result
from tests.support.timed_history import BASE_MS, paced, record, write

CONTENDED_RUN = {"environment": {"machine": {"contended": True}}}


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Three runs of each of two commits, the second 8 % slower; others that are like neither."""
    for number in range(3):
        for place, (name, factor) in enumerate((("old", 1.0), ("new", 1.08))):
            run = record(f"{name}-{number}", number + place / 2, git_commit=str(place + 1) * 40)
            write(tmp_path, run, paced(100 + 10 * number + place, dict.fromkeys(BASE_MS, factor)))
    others = {
        "busy": {"git_commit": "2" * 40} | CONTENDED_RUN,
        "elsewhere": {"git_commit": "2" * 40, "host": "lab-2"},
        "together": {"git_commit": "3" * 40, "engine": "fast, 256 pages together"},
        "unknown": {"git_commit": None},
    }
    for number, (name, fields) in enumerate(others.items()):
        write(tmp_path, record(name, 10 + number, **fields), paced(200 + number))
    return History(tmp_path)


def test_runs_of_one_commit_machine_and_setting_are_counted(history: History) -> None:
    found = compare_speed(history, ("old-1", "fast"), ("new-0", "fast")).set_index("stage")
    assert found.index[-1] == TOTAL
    assert found.loc[TOTAL, ["runs_a", "runs_b", "pages", "verdict"]].tolist() == [3, 3, 12, "slower"]
    assert found["ratio"].between(1.06, 1.10).all()
    back = compare_speed(history, ("new-0", "fast"), ("old-1", "fast")).set_index("stage")
    assert back.loc[TOTAL, "verdict"] == "faster"


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("old-0", "old-2", ONE_KIND), ("old-0", "busy", CONTENDED), ("old-0", "together", LATENCY),
        ("old-0", "elsewhere", "one run of B"), ("unknown", "elsewhere", "one run a side"),
    ],
)  # fmt: skip
def test_what_is_no_speed_is_inconclusive_and_says_why(history: History, a: str, b: str, why: str) -> None:
    total = compare_speed(history, (a, "fast"), (b, "fast")).set_index("stage").loc[TOTAL]
    assert total["verdict"] == "inconclusive" and why in total["why"]
    assert total["ratio"] != total["ratio"], "no ratio of one process"


def test_contended_runs_count_where_they_are_asked_for(history: History) -> None:
    total = (
        compare_speed(history, ("old-0", "fast"), ("busy", "fast"), contended=True)
        .set_index("stage")
        .loc[TOTAL]
    )
    assert total["runs_b"] == 4  # with the three that were not


def test_all_runs_beside_a_baseline(history: History) -> None:
    found = against_baseline(history, ("old-0", "fast"), dict.fromkeys(history.run_ids(), "fast"))
    assert {run: ratio.verdict for run, ratio in found.items()} == {
        **dict.fromkeys(("new-0", "new-1", "new-2"), "slower"),
        **dict.fromkeys(("busy", "elsewhere", "together", "unknown"), "inconclusive"),
    }
    assert found["new-1"].ratio == pytest.approx(1.08, rel=0.02)
    assert found["together"].ratio != found["together"].ratio, "latency is not divided by throughput"


def drafted_run(location: Path, **environment: str) -> str:
    """A run of one page that the fast engine read."""
    result = replace(make_result(backend="fast"), environment={"engine": "fast", **environment})
    with Recording(Settings(engine="fast", history=str(location))) as recorder:
        recorder.add("page.png", Comparison(result.request, result))
    assert recorder.id is not None
    return recorder.id


@pytest.mark.parametrize("asked", [False, True])
def test_a_drafted_run_beside_an_undrafted_one_is_no_speed_unless_asked_for(
    tmp_path: Path, asked: bool
) -> None:
    plain, drafted = drafted_run(tmp_path), drafted_run(tmp_path, draft="text-layer")
    with History(tmp_path) as history:
        assert [history.record(run).engine for run in (plain, drafted)] == ["fast", "fast, with drafts"]
        found = compare_speed(history, (plain, "fast"), (drafted, "fast"), contended=asked)
        assert (set(found["why"]) == {ONE_DRAFTED}) == (not asked)
        same = compare_speed(history, (drafted, "fast"), (drafted, "fast"))
        assert ONE_DRAFTED not in set(same.get("why", ()))

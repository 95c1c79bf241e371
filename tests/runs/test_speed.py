"""Speeds over recorded runs: what counts as like a run, what is no speed at all, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.reading.parity import Comparison
from dsocr_core.runs import speed
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import setting
from dsocr_core.runs.record import Recording
from dsocr_core.runs.settings_diff import side_by_side
from dsocr_core.runs.speed import CONTENDED, LATENCY, ONE_DRAFTED, ONE_KIND, compare_speed
from dsocr_core.runs.statistics import TOTAL
from dsocr_core.settings import Settings
from tests.support.results import make_result
from tests.support.timed_history import BASE_MS, paced, record, write

CONTENDED_RUN = {"environment": {"machine": {"contended": True}}}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Three runs of each of two commits, the second 8 % slower; others that are like neither."""
    root = tmp_path_factory.mktemp("history")
    for number in range(3):
        for place, (name, factor) in enumerate((("old", 1.0), ("new", 1.08))):
            run = record(f"{name}-{number}", number + place / 2, git_commit=str(place + 1) * 40)
            write(root, run, paced(100 + 10 * number + place, dict.fromkeys(BASE_MS, factor)))
    others = {
        "busy": {"git_commit": "2" * 40} | CONTENDED_RUN,
        "elsewhere": {"git_commit": "2" * 40, "host": "lab-2"},
        "together": {"git_commit": "3" * 40, "engine": "fast, 256 pages together"},
        "unknown": {"git_commit": None},
    }
    for number, (name, fields) in enumerate(others.items()):
        write(root, record(name, 10 + number, **fields), paced(200 + number))
    less = {key: spent for key, spent in paced(300).items() if key[2] != "decode" or key[0] != "page-00.png"}
    write(root, record("less", 20, git_commit="4" * 40), less)
    return History(root)


def total(history: History, a: str, b: str, contended: bool = False) -> pd.Series:
    found = compare_speed(history, (a, "fast"), (b, "fast"), contended=contended).set_index("stage")
    assert found.index[-1] == TOTAL
    return found.loc[TOTAL]


def test_runs_of_one_commit_machine_and_setting_are_counted(history: History) -> None:
    found = total(history, "old-1", "new-0")
    assert found[["runs_a", "runs_b", "pages", "verdict"]].tolist() == [3, 3, 12, "slower"]
    assert 1.06 < found["ratio"] < 1.10
    assert total(history, "new-0", "old-1")["verdict"] == "faster"
    assert total(history, "old-0", "busy", contended=True)["runs_b"] == 4  # with the three that were not
    assert total(history, "old-0", "less")["pages"] == 11  # a page without its decode is no page as a whole


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("old-0", "old-2", ONE_KIND), ("old-0", "busy", CONTENDED), ("old-0", "together", LATENCY),
        ("old-0", "elsewhere", "one run of B"), ("unknown", "elsewhere", "one run a side"),
    ],
)  # fmt: skip
def test_what_is_no_speed_is_inconclusive_and_says_why(history: History, a: str, b: str, why: str) -> None:
    found = total(history, a, b)
    assert found["verdict"] == "inconclusive" and why in found["why"]
    assert pd.isna(found["ratio"]), "no ratio of one process"


@pytest.mark.parametrize("asked", [False, True])
def test_a_drafted_run_beside_an_undrafted_one_is_no_speed_unless_asked_for(
    tmp_path: Path, asked: bool
) -> None:
    names = []
    for environment in ({}, {"draft": "lookup"}):
        result = replace(make_result(backend="fast"), environment={"engine": "fast", **environment})
        with Recording(Settings(engine="fast", history=str(tmp_path))) as recorder:
            recorder.add("page.png", Comparison(result.request, result))
        names.append((str(recorder.id), "fast"))
    with History(tmp_path) as history:
        assert [history.record(run).engine for run, _ in names] == ["fast", "fast, with drafts"]
        found = compare_speed(history, *names, contended=asked)
        assert (set(found["why"]) == {ONE_DRAFTED}) == (not asked)
        assert ONE_DRAFTED not in set(compare_speed(history, names[1], names[1]).get("why", ()))


# --- in words and tables --------------------------------------------------------------------------


def test_a_page_that_was_read_again_is_one_page() -> None:
    copies = [f"p{page}{copy}" for page in range(2) for copy in ("", " #2", " #3")]
    coverage = pd.DataFrame({"page": [*copies, "q"], "outcome": ["compared"] * 6 + ["not in A"]})
    assert speed.coverage_words(coverage) == "2 of 3 pages compared. Left out: 1 not in A."


def test_settings_as_asked_are_not_beside_what_they_came_to() -> None:
    facts = pd.DataFrame(
        [("a", "settings", "dtype", "auto"), ("b", "settings", "dtype", "float32"),
         ("a", "settings", "pdf_dpi", "150"), ("b", "settings", "pdf_dpi", "72")],
        columns=["run_id", "section", "name", "value"],
    )  # fmt: skip
    assert side_by_side(facts, ["a", "b"], differing=True)["name"].tolist() == ["pdf_dpi"]


@pytest.mark.parametrize(
    ("engine", "backends"), [("eager", ["eager", "vendor"]), ("endpoint plain", ["endpoint", "endpoint-2"])]
)
def test_a_second_backend_does_not_have_the_dtype_of_the_run(engine: str, backends: list[str]) -> None:
    """F9: the vendor's row said bf16; it ran float32."""
    run = {"engine": engine, "device": "cpu", "dtype": "bfloat16", "attention": "sdpa", "backends": backends}
    assert [setting(run, each)[3:5] for each in backends] == [("bf16", "sdpa"), ("", "")]

"""The Timing page driven without a browser, on a made-up history; its charts against hand-made figures."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.models.stages import COLOURS, Stage
from dsocr_core.runs.history import History
from dsocr_core.runs.kernels import by_kernel, profile_of, profile_rows
from pages.widgets.timing import charts
from pages.widgets.timing.kernels import profile_words
from tests.support import timed_history
from tests.support.launches import LAUNCHES, metrics
from tests.support.opened_page import bodies, checked, figures, opened, words
from tests.support.timed_history import kernels, paced, record, write

open_page = partial(opened, "timing")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    timed_history.make(folder)
    return folder


# --- the page -------------------------------------------------------------------------------------


def test_the_seeds_open_with_one_true_sentence_and_two_rows_to_look_at(seeds: History) -> None:
    test = open_page()
    assert "25c101e → a9361dc on H200: no confirmed slowdown. 2 to look at." in words(test)
    rows = test.dataframe[0].value
    assert rows["of"].tolist() == ["fast ×256 · prefill › sam", "fast ×256 · preprocess"]
    # By SQL: medians over all 512 pages of each run.
    medians = seeds.sql(
        "SELECT median(milliseconds) FROM timings WHERE stage = 'sam' AND aggregate = 'page' AND "
        "run_id IN ('20261128-131625-b8566b97', '20261128-190651-89753832') GROUP BY run_id ORDER BY 1"
    ).iloc[:, 0]
    assert rows.loc[0, ["median_a", "median_b"]].tolist() == pytest.approx(medians.tolist())
    assert "prefill as a whole +853 µs: moved between stages?" in rows["said"][0]
    assert test.expander[0].label == "18 unchanged or too few runs"
    assert not figures(test)  # the chart's library is loaded where it is asked for
    test.session_state["timing rates"] = True
    (rates,) = figures(checked(test.run()))
    batch = next(trace for trace in rates["data"] if trace["name"] == "fast ×256")
    notes = [note["text"] for note in rates["layout"]["annotations"]]
    assert len(batch["text"]) == 5 and "27.4 pages/s, 1 run" in batch["text"][-1]
    assert "<b>▲ 1.13x</b>" in notes and "<b>▼ 1.84x</b>" in notes
    assert "Left out: 3 runs under a profiler" in words(test)


def test_filters_narrow_what_is_offered_and_profiled_runs_stay_out(history: History) -> None:
    test = open_page(gpu="no such card")
    assert "No workload was timed at two commits" in words(test)
    sides = [
        open_page(a="run-01", b="run-02", **more).selectbox(key="timing side a").options
        for more in ({}, {"profiled": "on"})
    ]
    assert [any("profiled" in label for label in labels) for labels in sides] == [False, True]


def test_a_row_opens_its_two_runs(empty: History) -> None:
    """Three runs of each commit: B's decode is 5 % slower, its sam as fast."""
    root = Path(empty.storage.location)
    commits = {"old": "1" * 40, "new": "2" * 40}
    for number in range(3):
        for place, (name, commit) in enumerate(commits.items()):
            factors = {Stage.DECODE: 1.05} if name == "new" else {}
            run = record(f"{name}-{number}", 20 + number + place / 2, git_commit=commit)
            write(root, run, paced(100 + 10 * number + place, factors))
    first = open_page()
    assert "1111111 → 2222222 on H200: fast on H200 is confirmed 1.05x slower in whole page" in words(first)
    assert first.dataframe[0].value["of"].tolist() == ["fast · whole page", "fast · decode"]
    test = open_page(a="old-0", b="new-1")
    table = next(frame.value for frame in test.dataframe if "outcome" in frame.value).set_index("stage")
    assert table.loc[["decode", "whole page", "sam"], "outcome"].tolist() == [
        "slower",
        "slower",
        "within ±2 %",
    ]
    assert table.loc["decode", ["runs_a", "runs_b", "pages"]].tolist() == [3, 3, 12]
    assert table.loc["decode", "low"] < table.loc["decode", "times"] < table.loc["decode", "high"]
    assert "B is 1.05x slower" in words(test) and "3 and 3 runs" in words(test)
    ratios = figures(test)[0]["data"][0]
    assert ratios["y"][0] == "whole page" and "95 %" in ratios["text"][0]
    assert any("\ngit checkout 111111111111 && python -m" in code.value for code in test.code)
    same = open_page(a="old-0", b="old-2")
    assert "Inconclusive" in words(same) and "runs of one commit" in words(same)
    assert "A and B are the same" in open_page(a="old-0", b="old-0").info[0].value


def test_one_run_a_side_is_inconclusive_and_says_what_is_left_out(history: History) -> None:
    test = open_page(a="run-05", b="partial")
    said = words(test)
    assert "Inconclusive, one run a side" in said and "9 of 12 pages compared. Left out: 1" in said
    assert all(f"1 {why}" in said for why in ("another image under the same name", "failed in B", "not in B"))
    frames = [frame.value for frame in test.dataframe]
    table = next(frame for frame in frames if "outcome" in frame)
    assert set(table["outcome"]) == {"inconclusive"} and "low" not in table
    differing = next(frame for frame in frames if "section" in frame).set_index("name")[["A", "B"]]
    assert list(differing.loc["number type"]) == ["bfloat16", "float16"]
    assert "commit" in differing.index and "GPU" not in differing.index


# --- charts ---------------------------------------------------------------------------------------


def test_vision_is_taken_out_of_the_prefill_that_it_lies_in() -> None:
    stages = {"decode": 100.0, "sam": 4.0, "prefill": 30.0, "clip": 6.0, "preprocess": 10.0}
    summary = pd.DataFrame(
        [{"run_id": "r", "stage": stage, "median": ms, "mean": ms} for stage, ms in stages.items()]
    )
    drawn = charts.stacks(summary, pd.DataFrame({"run_id": ["r"], "page_ms": [139.0]}), ["r"], {"r": "abc"})
    heights = {re.sub(r"^prefill › ", "", trace.name): trace.y[0] for trace in drawn.data}
    assert heights == {
        "preprocess": 10, "sam": 4, "clip": 6, "prefill without vision": 20, "decode": 100,
        "whole page, median": 139,
    }  # fmt: skip
    colours = {trace.name: trace.marker.color for trace in drawn.data}
    assert colours["decode"] == COLOURS["decode"]


def test_of_many_series_and_commits_the_newest_are_drawn_and_the_rest_counted() -> None:
    series = pd.DataFrame(
        [
            {"workload": work, "name": f"s{work}", "backend": "fast", "commit": f"c{place}",
             "position": place, "since": pd.Timestamp(2026, 1, 1) + pd.Timedelta(days=place, minutes=work),
             "run_ids": ["r"], "pages_per_s": 10.0**work, "before": 10.0**work / 2,
             "words": "w" if (work, place) in ((9, 99), (9, 3), (0, 99)) else None}
            for work in range(12) for place in range(100 if work < 10 else 1)
        ]
    )  # fmt: skip
    shown_series, shown_marks, said = charts.drawn(series)
    assert sorted(shown_series["workload"].unique()) == list(range(2, 10))
    assert shown_series["position"].min() == 40 and len(shown_marks) == 1
    assert said == " 4 series not drawn. The newest 60 of 100 commits."
    # F18: a change stands at its own series and commit, in its colour.
    figure = charts.rates(shown_series, shown_marks)
    (note,), colours = figure.layout.annotations, {trace.name: trace.line.color for trace in figure.data}
    assert (note.x, note.y, note.font.color) == (59, 9, colours["s9"])


# --- kernels --------------------------------------------------------------------------------------

HOSTILE = "<img src=x onerror=alert(1)>| kernel"


@pytest.fixture
def profiled(empty: History) -> History:
    """Two timed runs a commit, the second 20 % slower in decode, and a profile of each commit."""
    root = Path(empty.storage.location)
    for place, name in enumerate(("old", "new")):
        commit = {"git_commit": str(place + 1) * 40}
        for number in range(2):
            factors = {Stage.DECODE: 1.2} if place else {}
            write(root, record(f"{name}-{number}", 10 * place + number, **commit), paced(number, factors))
        sums = kernels("decode", {"gemm<4>(float*)": 2e6 + 1e6 * place, HOSTILE: 1e6, f"of_{name}": 5e5})
        write(root, record(f"{name}-nsys", 20 + place, profiled=True, **commit), {}, kernels=sums)
    empty.refresh()
    return empty


def test_two_runs_kernels_are_drawn_and_tabled(profiled: History) -> None:
    test = open_page(view="Kernels", run="new-nsys", against="old-nsys")
    table = test.dataframe[0].value
    assert table["found"].tolist() == ["in both", "gone", "new", "in both"]
    assert table["change_s"].tolist() == pytest.approx([1e-3, -5e-4, 5e-4, 0])
    assert "2 kernels in both, 1 new in B, 1 gone, by name; 3.50 ms → 4.50 ms in all." in words(test)
    assert not [body for body in bodies(test) if "<img" in body]
    assert not test.get("plotly_chart")  # sums have no roofline
    assert test.selectbox(key="timing part").options == ["all", "decode"]
    alone = open_page(view="Kernels", run="new-nsys")
    shares = alone.dataframe[0].value.set_index("short")["share"]
    assert shares["gemm"] == pytest.approx(3 / 4.5) and shares.sum() == pytest.approx(1)


def test_the_pair_leads_to_the_kernels_of_its_commits(profiled: History) -> None:
    runs = profiled.runs()
    assert [profile_of(profiled, runs, run) for run in ("old-0", "new-1")] == ["old-nsys", "new-nsys"]
    test = open_page(a="old-0", b="new-1")
    test.button(key="timing kernels").click().run()
    assert test.session_state["timing values"]["view"] == "Kernels"
    assert {name: test.session_state[f"timing {name}"] for name in ("against", "run", "part")} == {
        "against": "old-nsys", "run": "new-nsys", "part": "decode",
    }  # fmt: skip
    assert profile_of(profiled, runs[runs["git_commit"] != "1" * 40], "new-0") == "new-nsys"


def test_a_share_of_time_is_said_with_how_busy_its_units_were_and_no_time_is_no_sum() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    words = profile_words(rows, by_kernel(rows))
    assert "75.0 % of the time compute bound (SM 70.0 %, DRAM 10.0 % of peak)" in words
    timeless = metrics()
    rows = profile_rows(LAUNCHES, timeless[timeless["metric"] != "Duration"])
    assert "times not measured" in profile_words(rows, by_kernel(rows))

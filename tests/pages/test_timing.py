"""The Timing page driven without a browser, on a made-up history; its tables against hand-made figures."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.models.family import stage_colours
from dsocr_core.models.stages import Stage
from dsocr_core.runs import timings
from dsocr_core.runs.history import History
from pages.widgets.shared import resources
from pages.widgets.timing import charts
from tests.support import timed_history
from tests.support.opened_page import bodies, checked, figures, opened
from tests.support.timed_history import HOSTILE, PAGES, paced, record, write

open_page = partial(opened, "timing")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    timed_history.make(folder)
    return folder


def strip(test: AppTest) -> str:
    (found,) = [body for body in bodies(test) if "dsocr-strip'" in body]
    return re.sub(r"<[^>]+>", " ", found)


def options(test: AppTest, key: str) -> list[str]:
    return next(box for box in (*test.selectbox, *test.multiselect) if box.key == key).options


# --- the page -------------------------------------------------------------------------------------


def test_an_empty_history_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "history", lambda: History(tmp_path))
    test = open_page()
    assert "no runs yet" in test.markdown[0].value
    assert test.button(key="timing compare").label == "Go to Compare"


def test_the_newest_runs_come_first_and_the_address_holds_them(history: History) -> None:
    test = open_page(view="Stages")
    assert test.session_state["timing runs"] == [f"run-{number}" for number in ("13", "12", "11", "10", "09")]
    assert test.query_params["runs"] == test.session_state["timing runs"]
    assert not test.get("plotly_chart")  # the first view needs no library in the browser
    assert sum("class='dsocr-bars'" in element.proto.body for element in test.get("html")) == 1
    table = test.dataframe[0].value
    assert len(table) == 5 * 9
    # Pages are 0.6 to 1.7 times as slow as the base, 1.15 in the middle; decode of run 13 is 1.3x faster.
    decode = table[(table["stage"] == "decode") & table["run"].str.endswith("run-13")].iloc[0]
    assert decode["median"] == pytest.approx(1800 * 1.15 / 1.3, rel=0.02)
    assert decode["n"] == 12


def test_filters_narrow_what_is_offered_and_profiled_runs_stay_out(history: History) -> None:
    test = open_page(view="Trend", backend="fast")
    assert test.session_state["timing backend"] == ["fast"]
    assert any("16 of 19" in caption.value for caption in test.caption)
    without = options(open_page(view="Stages"), "timing runs")
    with_them = options(open_page(view="Stages", profiled="on"), "timing runs")
    assert not [label for label in without if "means" in label]
    assert [label for label in with_them if "means" in label]


def test_no_run_left_says_so(history: History) -> None:
    for view in ("Regressions", "Stages", "Trend", "B against A", "Kernels"):
        test = open_page(view=view, gpu="no such card")
        assert len(test.info) == 1, view
        assert not test.get("plotly_chart")


def test_a_link_to_a_run_that_is_gone_says_so(history: History) -> None:
    test = open_page(runs=["run-03", "gone"])
    assert "gone" in test.warning[0].value
    assert test.session_state["timing runs"] == ["run-03"]


def test_a_change_of_level_is_found_and_named_once(history: History) -> None:
    test = open_page(view="Trend")
    table = test.dataframe[0].value
    assert len(table) == 1
    assert table.iloc[0]["run_id"] == "run-08"
    assert table.iloc[0]["change"] in ("1.29x faster", "1.30x faster", "1.31x faster")
    (figure,) = figures(test)
    assert len(figure["layout"]["shapes"]) == 1
    assert figure["layout"]["shapes"][0]["x0"] == pytest.approx(9.5)  # two others lie before run 8


def _numbers(values: Any) -> list[float]:
    """A trace's values, which plotly may send as bytes."""
    if isinstance(values, dict):
        import base64

        return list(np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).astype(float))
    return list(values)


def test_a_against_b_is_faster_slower_or_inconclusive(history: History) -> None:
    test = open_page(view="B against A", a="run-05", b="partial")
    table = test.dataframe[0].value.set_index("stage")
    assert set(table["verdict"]) == {"inconclusive"} and "ratio" not in table
    words = strip(test)
    assert "INCONCLUSIVE" in words and "One run a side" in words
    assert "9 of 12 pages compared. Left out: 1" in words
    out = test.dataframe[1].value.set_index("reason")["which pages"]
    assert out.to_dict() == {
        "another image under the same name": PAGES[2], "failed in B": PAGES[0], "page not in B": PAGES[1],
    }  # fmt: skip
    differing = test.dataframe[2].value.set_index("name")[["A", "B"]]
    assert list(differing.loc["number type"]) == ["bfloat16", "float16"]
    assert "commit" in differing.index
    assert "GPU" not in differing.index


def test_runs_of_one_commit_are_the_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of each commit: B's decode is 5 % slower, its sam as fast."""
    commits = {"old": "1" * 40, "new": "2" * 40}
    for number in range(3):
        for place, (name, commit) in enumerate(commits.items()):
            factors = {Stage.DECODE: 1.05} if name == "new" else {}
            run = record(f"{name}-{number}", 20 + number + place / 2, git_commit=commit)
            write(tmp_path, run, paced(100 + 10 * number + place, factors))
    opened = History(tmp_path)
    monkeypatch.setattr(resources, "history", lambda: opened)
    test = open_page(view="B against A", a="old-0", b="new-1")
    table = test.dataframe[0].value.set_index("stage")
    assert table["verdict"][["decode", "whole page", "sam"]].tolist() == ["slower", "slower", "within"]
    assert table["speed"].notna()[["decode", "whole page", "sam"]].tolist() == [True, True, False]
    assert table.loc["decode", ["runs_a", "runs_b", "pages"]].tolist() == [3, 3, 12]
    assert table.loc["decode", "low"] < table.loc["decode", "ratio"] < table.loc["decode", "high"]
    assert "SLOWER" in strip(test) and "3 and 3 runs, 12 pages" in strip(test)
    assert "FASTER" in strip(checked(test.button(key="timing swap").click().run()))
    wide = open_page(view="B against A", a="old-0", b="new-1", neutral="50")
    assert set(wide.dataframe[0].value["verdict"]) == {"within"}
    assert "WITHIN ±50 %" in strip(wide)
    first = open_page()
    assert first.dataframe[0].value["stage"].tolist()[:2] == ["whole page", "decode"]
    assert "SLOWER" in strip(first) and "slower 2" in " ".join(strip(first).split())
    assert first.dataframe[0].value.loc[1, "commits"] == f"{'1' * 7} → {'2' * 7}"
    same = open_page(view="B against A", a="old-0", b="old-2")
    assert "INCONCLUSIVE" in strip(same) and "runs of one commit" in strip(same)


@pytest.mark.parametrize(
    ("figure", "expected"),
    # The last runs: pages of 0.6 to 1.7 times 1,996 ms, decode 1.3 times as fast (415 ms less).
    [("s/page", 1.15 * (1996 - 415.4) / 1e3), ("pages/s", 1e3 / (1.15 * (1996 - 415.4)))],
)
def test_rates_and_times_of_pages_have_a_trend(history: History, figure: str, expected: float) -> None:
    test = open_page(view="Trend", stage=figure, backend="fast")
    (drawn,) = figures(test)
    points = [trace for trace in drawn["data"] if trace.get("mode") == "markers"]
    last = next(trace for trace in points if len(_numbers(trace["y"])) > 9)
    assert _numbers(last["y"])[-1] == pytest.approx(expected, rel=0.03)
    (change,) = test.dataframe[0].value["change"]
    assert change.endswith("faster") and float(change.split("x")[0]) == pytest.approx(1996 / 1580.6, rel=0.02)


def test_hostile_names_are_values_and_no_sql(history: History) -> None:
    found = history.sql("FROM images WHERE run_id = 'hostile'")
    assert sorted(found["page"]) == sorted(HOSTILE)
    filtered = open_page(view="Trend", gpu="'; DROP TABLE runs; --")
    assert any("1 of 19 runs" in caption.value for caption in filtered.caption)


def test_new_runs_wait_until_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        timed_history.write(
            tmp_path, timed_history.record(f"run-{number}", number), timed_history.paced(number)
        )
    opened = History(tmp_path)
    monkeypatch.setattr(resources, "history", lambda: opened)
    test = open_page(view="Stages")
    timed_history.write(tmp_path, timed_history.record("later", 5), timed_history.paced(5))
    opened.refresh()  # another tab did
    checked(test.run())
    assert "later" not in test.session_state["timing runs"]
    assert any("2 of 2 runs" in caption.value for caption in test.caption)
    assert test.button(key="history refresh").label == "1 new run"
    checked(test.button(key="history refresh").click().run())
    assert test.session_state["timing runs"][0] == "later"


# --- tables and charts ----------------------------------------------------------------------------


def summary(**medians: float) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"run_id": "r", "created": pd.Timestamp(2026, 1, 1), "backend": "fast", "stage": stage,
             "inside_prefill": stage in ("sam", "clip", "vision"), "n": 3, "median": value, "p5": value,
             "p95": value, "mean": value, "std": 0.0}
            for stage, value in medians.items()
        ]
    )  # fmt: skip


def test_vision_is_drawn_inside_prefill_and_adds_nothing() -> None:
    rows = timings.stage_rows(summary(decode=100, sam=4, prefill=30, clip=6, preprocess=10), ["r"])
    html = charts.stage_bars(rows, {"r": ("r", "")})
    bars = re.findall(r"<i class='(\w+)' style='left:([\d.]+)%;width:([\d.]+)%;[^']*' title='([^']*)'", html)
    drawn = {words.split(":")[0]: (kind, float(left), float(wide)) for kind, left, wide, words in bars}
    assert [*drawn].index("prefill") < [*drawn].index("prefill › sam")  # vision lies on prefill's bar
    # Of 140 ms: preprocess, prefill from 10 with clip after sam, decode from 40.
    for name, kind, start, size in (
        ("preprocess", "outer", 0, 10), ("prefill", "outer", 10, 30), ("prefill › sam", "inside", 10, 4),
        ("prefill › clip", "inside", 14, 6), ("decode", "outer", 40, 100),
    ):  # fmt: skip
        at = (pytest.approx(start / 1.4, abs=1e-3), pytest.approx(size / 1.4, abs=1e-3))
        assert drawn[name] == (kind, *at)
    # The legend has what was measured: another model's stages are none of these runs'.
    legend = re.findall(r"<i style='background:(#\w+)'></i>(?:prefill › )?(\w+)<", html)
    assert [name for _, name in legend] == ["preprocess", "sam", "clip", "prefill", "decode"]
    assert {name: colour for colour, name in legend}.items() <= stage_colours().items()

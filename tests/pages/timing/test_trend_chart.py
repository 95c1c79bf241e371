"""The trend: runs of a commit stand over each other, and what is left out keeps its levels."""

from __future__ import annotations

import pandas as pd

from dsocr_core.runs.measures import measure_of
from dsocr_core.runs.timings import newest
from pages.widgets.timing.charts import trend

RUNS = 400


def _rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "condition": "H200, fast", "position": range(RUNS), "value": 100.0, "low": 90.0, "high": 120.0,
            "created": pd.date_range("2026-01-01", periods=RUNS, freq="h"), "of_pages": True, "n": 5,
            "run_id": [f"run-{number}" for number in range(RUNS)], "git_commit": "c" * 40, "mean": 100.0,
            "std": 1.0,
        }
    )  # fmt: skip


def _changes(at: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"first": at, "value": 120.0, "before": 100.0})


def test_runs_of_a_commit_stand_over_each_other() -> None:
    rows = _rows().assign(git_commit=[f"{number // 100}" * 40 for number in range(RUNS)])
    none = pd.DataFrame({"condition": [], "first": [], "last": [], "value": []})
    figure = trend(rows, none, _changes([200]), measure_of("tokens/s"))
    assert [*figure.layout.xaxis.ticktext] == ["0000000", "1111111", "2222222", "3333333"]
    assert [*figure.layout.xaxis.tickvals] == [0, 1, 2, 3] and {*figure.data[1].x} == {0, 1, 2, 3}
    assert figure.layout.shapes[0].x0 == 1.5
    assert figure.layout.annotations[0].text == "<b>1.20x faster</b>"  # more tokens a second
    assert figure.layout.yaxis.title.text == "tokens/s" and max(figure.data[1].y) == 100


def test_the_newest_runs_keep_their_levels_and_changes() -> None:
    steps = pd.DataFrame(
        {"condition": "H200, fast", "first": [0, 310, 390], "last": [309, 389, 399], "value": [1.0, 2.0, 3.0]}
    )
    rows, levels, changes = newest(_rows(), steps, _changes([310, 390]), 50)
    assert list(rows["position"]) == list(range(350, 400))
    assert levels[["first", "last"]].values.tolist() == [[350, 389], [390, 399]]
    assert list(changes["first"]) == [390]

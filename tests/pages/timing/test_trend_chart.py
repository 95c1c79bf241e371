"""The trend of the newest runs: what is left out keeps its levels."""

from __future__ import annotations

import pandas as pd

from dsocr_core.runs.timings import newest

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


def test_the_newest_runs_keep_their_levels_and_changes() -> None:
    steps = pd.DataFrame(
        {"condition": "H200, fast", "first": [0, 310, 390], "last": [309, 389, 399], "value": [1.0, 2.0, 3.0]}
    )
    rows, levels, changes = newest(_rows(), steps, _changes([310, 390]), 50)
    assert list(rows["position"]) == list(range(350, 400))
    assert levels[["first", "last"]].values.tolist() == [[350, 389], [390, 399]]
    assert list(changes["first"]) == [390]

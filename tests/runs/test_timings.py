"""Times of runs as people compare them, against hand-made figures."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsocr_core.runs import statistics, timings
from dsocr_core.runs.labels import chart_names
from dsocr_core.runs.settings_diff import differ, side_by_side


def test_a_whole_page_needs_the_same_stages_on_both_sides() -> None:
    totals = pd.DataFrame(
        [("a", "p", "fast", 10.0, ["decode", "prefill"]), ("b", "p", "fast", 5.0, ["decode", "prefill"]),
         ("a", "q", "fast", 10.0, ["decode", "prefill"]), ("b", "q", "fast", 4.0, ["decode"])],
        columns=["run_id", "page", "backend", "milliseconds", "stages"],
    )  # fmt: skip
    pairs = pd.DataFrame({"stage": "decode", "page": ["p", "q"], "a_ms": 1.0, "b_ms": 1.0})
    whole = timings.whole_pages(totals, pairs, ("a", "fast"), ("b", "fast"))
    assert whole.to_dict("records") == [{"stage": "whole page", "page": "p", "a_ms": 10.0, "b_ms": 5.0}]


def test_levels_of_other_conditions_do_not_mix() -> None:
    created = pd.date_range("2026-01-01", periods=12)
    levels = [(300.0 if number % 2 else 100.0) + number % 3 * 0.1 for number in range(12)]
    runs = pd.DataFrame(
        {"run_id": [f"r{number}" for number in range(12)], "gpu": ["H200", "A100"] * 6, "engine": "fast"}
    )
    found = pd.DataFrame(
        {"run_id": runs["run_id"], "created": created, "git_commit": None, "n": 5, "p5": 1.0, "p95": 9.0,
         "mean": np.nan, "std": np.nan, "median": levels}
    )  # fmt: skip
    rows = timings.trend_rows(found, runs)
    assert set(rows["condition"]) == {"H200, fast", "A100, fast"}
    assert statistics.changes(statistics.levels(rows)).empty


def test_another_checkpoint_or_token_limit_is_a_series_of_its_own() -> None:
    created = pd.date_range("2026-01-01", periods=8)
    ids = [f"r{number}" for number in range(8)]
    runs = pd.DataFrame({"run_id": ids, "gpu": "H200", "engine": "fast"})
    found = pd.DataFrame(
        {"run_id": ids, "created": created, "git_commit": None, "n": 5, "p5": 1.0, "p95": 9.0,
         "mean": np.nan, "std": np.nan, "median": [100.0] * 4 + [300.0, 300.0, 30.0, 30.0],
         "checkpoint": ["small"] * 4 + ["large"] * 3 + [None], "prompt": "markdown",
         "max_new_tokens": ["8192"] * 6 + ["120", None]}
    )  # fmt: skip
    rows = timings.trend_rows(found, runs)
    assert rows["condition"].unique().tolist() == [
        "H200, fast, small", "H200, fast, large", "H200, fast, large, limit 120",
        "H200, fast, checkpoint not known, limit not known",
    ]  # fmt: skip
    assert statistics.changes(statistics.levels(rows)).empty


def test_another_decode_policy_is_a_series_of_its_own() -> None:
    runs = pd.DataFrame({"run_id": list("abc"), "gpu": "H200", "engine": "fast"})
    found = pd.DataFrame(
        {"run_id": list("abc"), "created": pd.date_range("2026-01-01", periods=3), "git_commit": None, "n": 5,
         "p5": 1.0, "p95": 9.0, "mean": np.nan, "std": np.nan, "median": [100.0, 101.0, 400.0],
         "policy": ["as published", "as published", "ngram_window 90"]}
    )  # fmt: skip
    rows = timings.trend_rows(found, runs)
    assert rows["condition"].tolist() == ["H200, fast", "H200, fast", "H200, fast, ngram_window 90"]


def test_a_series_of_few_runs_tells_no_change() -> None:
    """Each of them is one process."""
    runs = pd.DataFrame({"run_id": list("abcde"), "gpu": "H200", "engine": "fast"})
    medians = np.array([1260.0, 550.0, 450.0, 420.0, 419.0])
    found = pd.DataFrame(
        {"run_id": runs["run_id"], "created": pd.date_range("2026-01-01", periods=5), "git_commit": None,
         "n": 5, "p5": medians - 5, "p95": medians + 5, "mean": np.nan, "std": np.nan, "median": medians}
    )  # fmt: skip
    assert statistics.changes(statistics.levels(timings.trend_rows(found, runs))).empty


def test_a_page_that_a_run_read_again_is_one_page() -> None:
    copies = [f"p{page}{copy}" for page in range(2) for copy in ("", " #2", " #3")]
    coverage = pd.DataFrame({"page": [*copies, "q"], "outcome": ["compared"] * 6 + ["page not in A"]})
    assert timings.coverage_words(coverage) == "2 of 3 pages compared. Left out: 1 not in A."


def test_settings_as_asked_are_not_beside_what_they_came_to() -> None:
    facts = pd.DataFrame(
        [("a", "settings", "dtype", "auto"), ("b", "settings", "dtype", "float32"),
         ("a", "settings", "pdf_dpi", "150"), ("b", "settings", "pdf_dpi", "72")],
        columns=["run_id", "section", "name", "value"],
    )  # fmt: skip
    assert side_by_side(facts, ["a", "b"], differing=True)["name"].tolist() == ["pdf_dpi"]
    assert differ("settings", "checkpoint", ["data/mini", "/home/me/data/mini"]) is False
    assert differ("settings", "checkpoint", ["data/mini", "/home/me/data/max"]) is True


def test_conditions_of_one_backend_are_not_those_of_a_run_of_two() -> None:
    run = {"run_id": "r", "created": pd.Timestamp("2026-01-01"), "device": "cpu", "engine": "eager",
           "dtype": "bfloat16", "preset": "base"}  # fmt: skip
    names = [chart_names(pd.DataFrame([run | {"backends": each}]))["r"][1] for each in (["a", "b"], ["a"])]
    assert names == ["cpu, base", "cpu, eager, bf16, base"]

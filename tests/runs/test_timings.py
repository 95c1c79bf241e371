"""Times of runs as people compare them, against hand-made figures."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dsocr_core.runs import statistics, timings
from dsocr_core.runs.labels import apart, run_labels, short, unlike


def test_a_whole_page_needs_the_same_stages_on_both_sides() -> None:
    totals = pd.DataFrame(
        [("a", "p", "fast", 10.0, ["decode", "prefill"]), ("b", "p", "fast", 5.0, ["decode", "prefill"]),
         ("a", "q", "fast", 10.0, ["decode", "prefill"]), ("b", "q", "fast", 4.0, ["decode"])],
        columns=["run_id", "page", "backend", "milliseconds", "stages"],
    )  # fmt: skip
    pairs = pd.DataFrame({"stage": "decode", "page": ["p", "q"], "a_ms": 1.0, "b_ms": 1.0})
    whole = timings.whole_pages(totals, pairs, ("a", "fast"), ("b", "fast"))
    assert whole.to_dict("records") == [{"stage": "whole page", "page": "p", "a_ms": 10.0, "b_ms": 5.0}]


def test_pages_left_out_are_counted_in_words() -> None:
    outcomes = ["page not in B"] * 13 + ["failed in A", "compared"]
    coverage = pd.DataFrame({"stage": "decode", "page": map(str, range(15)), "outcome": outcomes})
    assert timings.coverage_words(coverage) == (
        "1 of 15 pages compared. Left out: 13 not in B, 1 failed in A."
    )


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


def test_levels_within_the_neutral_band_are_one() -> None:
    values = np.array([100.0, 101, 100, 101, 100, 101, 100, 101, 130, 100, 101])
    assert statistics._telling(values, [6]) == []
    assert statistics._telling(np.concatenate([values, values * 1.3]), [6, 11]) == [11]


def test_names_are_short_unlike() -> None:
    assert short("a" * 50 + "b" * 50, 20) == "a" * 12 + "…" + "b" * 7
    assert short("one\ntwo\t\x00three") == "one two three"
    assert list(unlike({"a": "x", "b": "x", "c": "y"}).values()) == ["x", "x (2)", "y"]
    runs = pd.DataFrame(
        {"run_id": ["first-12345678", "other-12345678"], "created": pd.Timestamp(2026, 1, 2, 3, 4),
         "gpu": [None, "NVIDIA H200"], "device": "cpu", "pages": [np.nan, 4]}
    )  # fmt: skip
    assert list(run_labels(runs).values()) == [
        "cpu · 12345678 · 2026-01-02 03:04", "H200 · 4 pages · 12345678 · 2026-01-02 03:04",
    ]  # fmt: skip


def test_series_are_told_apart_by_what_they_do_not_share() -> None:
    assert apart(
        ["H200, fast, base", "H200, fast, gundam", "H200, fast, 256 pages, gundam", "H200, fast"]
    ) == (
        "H200, fast",
        {
            "H200, fast, base": "base",
            "H200, fast, gundam": "gundam",
            "H200, fast, 256 pages, gundam": "256 pages, gundam",
            "H200, fast": "H200, fast",
        },
    )
    assert apart(["H200, fast"]) == ("", {"H200, fast": "H200, fast"})
    assert apart([]) == ("", {})

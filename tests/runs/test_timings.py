"""Times of runs as people compare them, against hand-made figures."""

from __future__ import annotations

import pandas as pd
import pytest

from dsocr_core.runs import timings
from dsocr_core.runs.labels import setting
from dsocr_core.runs.settings_diff import side_by_side


def test_a_whole_page_needs_the_same_stages_on_both_sides() -> None:
    totals = pd.DataFrame(
        [("a", "p", "fast", 10.0, ["decode", "prefill"]), ("b", "p", "fast", 5.0, ["decode", "prefill"]),
         ("a", "q", "fast", 10.0, ["decode", "prefill"]), ("b", "q", "fast", 4.0, ["decode"])],
        columns=["run_id", "page", "backend", "milliseconds", "stages"],
    )  # fmt: skip
    pairs = pd.DataFrame({"stage": "decode", "page": ["p", "q"], "a_ms": 1.0, "b_ms": 1.0})
    whole = timings.whole_pages(totals, pairs, ("a", "fast"), ("b", "fast"))
    assert whole.to_dict("records") == [{"stage": "whole page", "page": "p", "a_ms": 10.0, "b_ms": 5.0}]


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


@pytest.mark.parametrize(
    ("engine", "backends"), [("eager", ["eager", "vendor"]), ("endpoint plain", ["endpoint", "endpoint-2"])]
)
def test_a_second_backend_does_not_have_the_dtype_of_the_run(engine: str, backends: list[str]) -> None:
    """F9: the vendor's row said bf16; it ran float32."""
    run = {"engine": engine, "device": "cpu", "dtype": "bfloat16", "attention": "sdpa", "backends": backends}
    assert [setting(run, each)[3:5] for each in backends] == [("bf16", "sdpa"), ("", "")]

"""The tables of the Runs page. Pure: answers of the history in, tables for people out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dsocr_core.history.labels import has_value
from dsocr_core.history.statistics import NEUTRAL_BAND
from dsocr_core.records import VENDOR
from dsocr_core.review.verdicts import VERDICTS as REVIEW_VERDICTS
from dsocr_core.words import plural, speed_ratio
from pages.widgets.shared.strip import VERDICTS

USUAL = (
    "run", "tags", "device", "engine", "preset", "s/page", "tokens/s", "prefill ms", "to baseline",
    "same pages", "parity", "pages",
)  # fmt: skip
"""Columns that are shown until the reader chooses others: what one looks for first."""
COLUMNS = (
    *USUAL, "created (UTC)", "made by", "backends", "type", "attention", "failed", "verdicts", "profiled",
    "contended", "note",
    "new tokens", "commit", "host",
)  # fmt: skip
FASTER, SLOWER = "#2f81d6", "#c8602a"
"""Colours of a difference beyond the neutral band; both are read on light and on dark."""


def run_table(
    runs: pd.DataFrame, verdicts: pd.DataFrame, pace: pd.DataFrame, against: pd.DataFrame, baseline: str = ""
) -> pd.DataFrame:
    """The query `runs` with a row a run, in its order: its record, its pace, the verdicts of its reviews.

    `pace` is that query, of our engine where a run has one; `against` the query `against_baseline`: how many
    times as fast as the baseline's a run's median page is, over the pages that both have.
    """
    paces = own_pace(pace).set_index("run_id").reindex(runs["run_id"])
    ratios = own_pace(against).set_index("run_id").reindex(runs["run_id"])
    speed = (ratios["baseline_ms"].astype(float) / ratios["page_ms"].astype(float)).to_numpy()
    device = runs["gpu"].astype("str").where(runs["gpu"].notna(), runs["device"].astype("str"))
    # Of some runs nobody knows whether files were changed: that is no yes.
    changed = runs["git_dirty"].eq(True).fillna(False).map({True: " + changes", False: ""}).astype("str")
    reviews = review_words(verdicts)
    return pd.DataFrame(
        {
            "created (UTC)": runs["created"],
            "run": runs["run_id"],
            "made by": runs["source"],
            "backends": [", ".join(names) if has_value(names) else None for names in runs["backends"]],
            "engine": runs["engine"],
            "device": device.str.removeprefix("NVIDIA ").str.removeprefix("GeForce "),
            "s/page": paces["page_ms"].astype(float).to_numpy() / 1000,
            "tokens/s": paces["tokens_per_s"].astype(float).to_numpy(),
            "prefill ms": paces["prefill_ms"].astype(float).to_numpy(),
            "to baseline": np.where(runs["run_id"] == baseline, np.nan, speed),
            "same pages": ratios["n"].astype("Int64").to_numpy(),
            "type": runs["dtype"],
            "attention": runs["attention"],
            "preset": runs["preset"],
            "pages": runs["pages"].astype("Int64"),
            "failed": runs["failed"].astype("Int64"),
            "parity": [parity_words(run) for run in runs.to_dict("records")],
            "verdicts": runs["run_id"].map(reviews),
            "profiled": runs["profiled"],
            "contended": runs["contended"],
            "tags": [list(tags) for tags in runs["tags"]],
            "note": runs["note"].where(runs["note"].notna(), runs["notes"]),
            "new tokens": runs["new_tokens"].astype("Int64"),
            "commit": runs["git_commit"].astype("str").str[:8] + changed,
            "host": runs["host"],
        }
    )


def own_pace(pace: pd.DataFrame) -> pd.DataFrame:
    """One row a run: of our engine where it read, else of whatever did."""
    return pace.sort_values("backend", key=lambda names: names == VENDOR, kind="stable").drop_duplicates(
        "run_id"
    )


def baseline_words(speed: float) -> str:
    """Say how many times as fast as the baseline in words: "1.31x faster"."""
    return speed_ratio(1.0, speed)


def baseline_colour(speed: float) -> str:
    """The style of such a cell: a colour beyond the neutral band only."""
    if not max(speed, 1 / speed) > 1 + NEUTRAL_BAND:
        return ""
    return f"color: {FASTER if speed > 1 else SLOWER}; font-weight: 600"


def parity_words(run: Mapping[str, Any]) -> str | None:
    """Count a run's pages by verdict: "12 identical, 2 within"; None where none was compared."""
    if not has_value(run["compared"]):
        return None
    counts = {
        words.words.split()[0]: int(run[verdict]) for verdict, words in VERDICTS.items() if run[verdict]
    }
    return ", ".join(f"{count} {words}" for words, count in counts.items()) or None


def review_words(verdicts: pd.DataFrame) -> dict[str, str]:
    """`review.verdicts.verdict_counts` in words, by run: "12 pages: 8 same, 2 wrong"; one part a review."""
    words: dict[str, str] = {}
    for row in verdicts.to_dict("records"):
        counted = ", ".join(f"{int(row[verdict])} {verdict}" for verdict in REVIEW_VERDICTS if row[verdict])
        part = f"{plural(int(row['reviewed']), 'page')}: {counted}"
        words[row["run_id"]] = f"{words[row['run_id']]}; {part}" if row["run_id"] in words else part
    return words


def problem_table(problems: Mapping[str, str]) -> pd.DataFrame:
    """Show what the history could not read, with the reasons."""
    return pd.DataFrame({"entry": list(problems), "reason": list(problems.values())}, dtype="str")

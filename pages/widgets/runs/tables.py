"""The tables of the Runs page. Pure: answers of the history in, tables for people out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dsocr_core.base.formatting import plural
from dsocr_core.reading.records import VENDOR
from dsocr_core.review.verdicts import VERDICTS as REVIEW_VERDICTS
from dsocr_core.runs.labels import has_value, model_name
from dsocr_core.runs.statistics import Ratio
from pages.widgets.shared.verdicts import VERDICTS

USUAL = (
    "run", "tags", "kind", "model", "device", "engine", "dtype", "attention", "preset", "draft", "s/page",
    "pages/s", "tokens/s", "x baseline", "parity", "pages", "commit", "note",
)  # fmt: skip
"""Columns that are shown first: what one looks for. The table's own menu has the others."""


def run_table(
    runs: pd.DataFrame, verdicts: pd.DataFrame, pace: pd.DataFrame, against: Mapping[str, Ratio]
) -> pd.DataFrame:
    """The query `runs` with a row a run, in its order: its record, its pace, the verdicts of its reviews.

    `pace` is that query, of our engine where a run has one; `against` is
    `history.speed.against_baseline`.
    """
    paces = own_pace(pace).set_index("run_id").reindex(runs["run_id"])
    device = runs["gpu"].astype("str").where(runs["gpu"].notna(), runs["device"].astype("str"))
    # It may not be known whether files were changed: False here.
    changed = runs["git_dirty"].eq(True).fillna(False).map({True: " + changes", False: ""}).astype("str")
    reviews = review_words(verdicts)
    table = pd.DataFrame(
        {
            "run": runs["run_id"],
            "tags": [list(tags) for tags in runs["tags"]],
            "kind": runs["source"],
            "model": [next(iter(model_name({"checkpoint": path})), None) for path in runs["checkpoint"]],
            "device": device.str.removeprefix("NVIDIA ").str.removeprefix("GeForce "),
            "engine": runs["engine"],
            "dtype": runs["dtype"],
            "attention": runs["attention"],
            "preset": runs["preset"],
            "draft": runs["draft"],
            "s/page": paces["page_ms"].astype(float).to_numpy() / 1000,
            "pages/s": paces["pages_per_s"].astype(float).to_numpy(),
            "tokens/s": paces["tokens_per_s"].astype(float).to_numpy(),
            "x baseline": [speed(against.get(run_id)) for run_id in runs["run_id"]],
            "parity": [parity_words(run) for run in runs[["compared", *VERDICTS]].to_dict("records")],
            "pages": runs["pages"].astype("Int64"),
            "commit": runs["git_commit"].astype("str").str[:8] + changed,
            "note": runs["note"].where(runs["note"].notna(), runs["notes"]),
            "created (UTC)": runs["created"].dt.strftime("%Y-%m-%d %H:%M"),
            "settings": runs["policy"],
            "prefill ms": paces["prefill_ms"].astype(float).to_numpy(),
            "backends": [", ".join(names) if has_value(names) else None for names in runs["backends"]],
            "failed": runs["failed"].astype("Int64"),
            "verdicts": runs["run_id"].map(reviews),
            "profiled": runs["profiled"],
            "contended": runs["contended"],
            "new tokens": runs["new_tokens"].astype("Int64"),
            "host": runs["host"],
        }
    )
    return table.astype({"x baseline": float})


def own_pace(pace: pd.DataFrame) -> pd.DataFrame:
    """One row a run: of our engine where it read, else of whatever did."""
    return pace.sort_values("backend", key=lambda names: names == VENDOR, kind="stable").drop_duplicates(
        "run_id"
    )


def speed(ratio: Ratio | None) -> float | None:
    """Times as fast as the baseline; None where the interval says neither faster, slower nor alike."""
    return None if ratio is None or ratio.verdict == "inconclusive" else 1 / ratio.ratio


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

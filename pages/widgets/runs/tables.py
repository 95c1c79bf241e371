"""The tables of the Runs page. Pure: answers of the history in, tables for people out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dsocr_core.base.words import plural, speed_ratio
from dsocr_core.reading.records import VENDOR
from dsocr_core.review.verdicts import VERDICTS as REVIEW_VERDICTS
from dsocr_core.runs.labels import has_value, model_name
from dsocr_core.runs.statistics import SURE, Ratio, outcome_words
from pages.widgets.shared.strip import VERDICTS

USUAL = (
    "run", "tags", "kind", "model", "device", "engine", "dtype", "attention", "preset", "draft", "s/page",
    "pages/s", "tokens/s", "to baseline", "parity", "pages", "commit", "note",
)  # fmt: skip
"""Columns that are shown until the reader chooses others: what one looks for first."""
COLUMNS = (
    *USUAL, "settings", "prefill ms", "created (UTC)", "backends", "failed", "verdicts", "profiled",
    "contended", "new tokens", "host",
)  # fmt: skip
PINNED = "pinned"
"""Tag of runs that stay on top."""
FASTER, SLOWER = "#2f81d6", "#c8602a"
"""Colours of a difference beyond the neutral band; both are read on light and on dark."""


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
    return pd.DataFrame(
        {
            "created (UTC)": runs["created"],
            "run": runs["run_id"],
            "kind": runs["source"],
            "model": [next(iter(model_name({"checkpoint": path})), None) for path in runs["checkpoint"]],
            "draft": runs["draft"],
            "settings": runs["policy"],
            "backends": [", ".join(names) if has_value(names) else None for names in runs["backends"]],
            "engine": runs["engine"],
            "device": device.str.removeprefix("NVIDIA ").str.removeprefix("GeForce "),
            "s/page": paces["page_ms"].astype(float).to_numpy() / 1000,
            "pages/s": paces["pages_per_s"].astype(float).to_numpy(),
            "tokens/s": paces["tokens_per_s"].astype(float).to_numpy(),
            "prefill ms": paces["prefill_ms"].astype(float).to_numpy(),
            "to baseline": [baseline_words(against.get(run_id)) for run_id in runs["run_id"]],
            "dtype": runs["dtype"],
            "attention": runs["attention"],
            "preset": runs["preset"],
            "pages": runs["pages"].astype("Int64"),
            "failed": runs["failed"].astype("Int64"),
            "parity": [parity_words(run) for run in runs[["compared", *VERDICTS]].to_dict("records")],
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


def on_top(table: pd.DataFrame, group: str, baseline: str) -> pd.DataFrame:
    """The same rows: the baseline and those tagged so first, then by the column to group by."""
    pinned = table["tags"].map(lambda tags: PINNED in tags) | (table["run"] == baseline)
    keys = pd.DataFrame({"pinned": ~pinned})
    if group in table:
        keys["group"] = table[group].map(str) if group == "tags" else table[group]
    return table.loc[keys.sort_values(list(keys), kind="stable").index].reset_index(drop=True)


def own_pace(pace: pd.DataFrame) -> pd.DataFrame:
    """One row a run: of our engine where it read, else of whatever did."""
    return pace.sort_values("backend", key=lambda names: names == VENDOR, kind="stable").drop_duplicates(
        "run_id"
    )


def baseline_words(ratio: Ratio | None) -> str | None:
    """Write a ratio to the baseline: "1.31x faster", "within ±2 %", "inconclusive"."""
    if ratio is None:
        return None
    return speed_ratio(ratio.ratio, 1.0) if ratio.verdict in SURE else outcome_words(ratio.verdict)


def sort_number(ratio: Ratio | None) -> float | None:
    """Speed beside the baseline, to sort by; one that nothing is known of stands in the middle."""
    if ratio is None:
        return None
    return 1.0 if ratio.verdict == "inconclusive" else 1 / ratio.ratio


def sortable(table: pd.DataFrame, against: Mapping[str, Ratio]) -> tuple[pd.DataFrame, dict[float, str]]:
    """The table with numbers to sort by in place of the words beside the baseline, and the words of each.

    Runs of one ratio may have other words: their numbers differ in a digit that nobody sorts by.
    """
    numbers = [sort_number(against.get(run)) for run in table["run"]]
    apart = [float("nan") if one is None else one * (1 + row * 1e-12) for row, one in enumerate(numbers)]
    told = {one: words for one, words in zip(apart, table["to baseline"], strict=True) if one == one}
    return table.assign(**{"to baseline": apart}), told


def baseline_colour(words: str | None) -> str:
    """The style of such a cell: a colour where B is faster or slower, grey where nothing is known."""
    for end, style in (("faster", f"color: {FASTER}; font-weight: 600"), ("inconclusive", "color: gray"),
                       ("slower", f"color: {SLOWER}; font-weight: 600")):  # fmt: skip
        if str(words).endswith(end):
            return style
    return ""


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

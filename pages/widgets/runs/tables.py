"""The tables of the Runs page. Pure: answers of the history in, tables for people out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dsocr_core.history.sameness import differ
from dsocr_core.history.statistics import NEUTRAL_BAND
from dsocr_core.records import VENDOR
from dsocr_core.review.verdicts import VERDICTS as REVIEW_VERDICTS
from pages.widgets.shared.formats import plural, speed_ratio
from pages.widgets.shared.labels import has_value
from pages.widgets.shared.verdicts import VERDICTS

RECORD_FIELDS = (
    "source", "backends", "engine", "device", "gpu", "host", "dtype", "attention", "preset", "profiled",
    "git_commit", "git_dirty",
)  # fmt: skip
"""What a run's record says of where and how it ran, beside its settings, environment and versions."""


USUAL = (
    "run", "tags", "device", "engine", "preset", "s/page", "tokens/s", "prefill ms", "to baseline", "parity",
    "pages",
)  # fmt: skip
"""Columns that are shown until the reader chooses others: what one looks for first."""
COLUMNS = (
    *USUAL, "created (UTC)", "made by", "backends", "type", "attention", "failed", "verdicts", "profiled",
    "contended", "note",
    "new tokens", "commit", "host",
)  # fmt: skip
FASTER, SLOWER = "#2f81d6", "#c8602a"
"""Colours of a difference beyond the neutral band; both are read on light and on dark."""


def shown_runs(
    runs: pd.DataFrame,
    verdicts: pd.DataFrame,
    pace: pd.DataFrame,
    against: pd.DataFrame,
    baseline: str = "",
) -> pd.DataFrame:
    """The query `runs` as the page shows it, in its order, with the verdicts of its reviews.

    `pace` is that query of our engine where a run has one; `against` the query `against_baseline`.
    """
    reviews = review_words(verdicts)
    paces = {row["run_id"]: row for row in own_pace(pace).to_dict("records")}
    to_baseline = {row["run_id"]: baseline_words(row) for row in own_pace(against).to_dict("records")}
    to_baseline |= {baseline: "the baseline"} if len(against) else {}

    # Of some runs nobody knows whether files were changed: that is no yes.
    changed = runs["git_dirty"].eq(True).fillna(False)

    def figures(name: str, scale: float = 1.0) -> list[float | None]:
        found = [paces.get(run_id, {}).get(name) for run_id in runs["run_id"]]
        return [float(f"{value / scale:.3g}") if has_value(value) else None for value in found]

    return pd.DataFrame(
        {
            "created (UTC)": runs["created"],
            "run": runs["run_id"],
            "made by": runs["source"],
            "backends": [", ".join(names) if has_value(names) else None for names in runs["backends"]],
            "engine": runs["engine"],
            "device": [
                str(gpu if has_value(gpu) else device).removeprefix("NVIDIA ").removeprefix("GeForce ")
                if has_value(gpu) or has_value(device) else None
                for gpu, device in zip(runs["gpu"], runs["device"], strict=True)
            ],
            "s/page": figures("page_ms", 1000),
            "tokens/s": figures("tokens_per_s"),
            "prefill ms": figures("prefill_ms"),
            "to baseline": [to_baseline.get(run_id) for run_id in runs["run_id"]],
            "type": runs["dtype"],
            "attention": runs["attention"],
            "preset": runs["preset"],
            "pages": runs["pages"].astype("Int64"),
            "failed": runs["failed"].astype("Int64"),
            "parity": [parity_words(run) for run in runs.to_dict("records")],
            "verdicts": [reviews.get(run_id) for run_id in runs["run_id"]],
            "profiled": runs["profiled"],
            "contended": runs["contended"],
            "tags": [list(tags) for tags in runs["tags"]],
            "note": runs["note"].where(runs["note"].notna(), runs["notes"]),
            "new tokens": runs["new_tokens"].astype("Int64"),
            "commit": [
                commit[:8] + (" + changes" if dirty else "") if has_value(commit) else None
                for commit, dirty in zip(runs["git_commit"], changed, strict=True)
            ],
            "host": runs["host"],
        }
    )  # fmt: skip


def own_pace(pace: pd.DataFrame) -> pd.DataFrame:
    """One row a run: of our engine where it read, else of whatever did."""
    return pace.sort_values("backend", key=lambda names: names == VENDOR, kind="stable").drop_duplicates(
        "run_id"
    )


def baseline_words(row: Mapping[str, Any]) -> str | None:
    """How a run's median page stands to the baseline's over the same pages: "1.31x faster (14 p.)"."""
    if not has_value(row["page_ms"]) or not has_value(row["baseline_ms"]):
        return None
    return f"{speed_ratio(row['page_ms'], row['baseline_ms'])} ({int(row['n'])} p.)"


def baseline_colour(words: object) -> str:
    """The style of such a cell: a colour beyond the neutral band only."""
    ratio = re.match(r"([\d.,]+)x (faster|slower)", words) if isinstance(words, str) else None
    if ratio is None or float(ratio[1].replace(",", "")) <= 1 + NEUTRAL_BAND:
        return ""
    return f"color: {FASTER if ratio[2] == 'faster' else SLOWER}; font-weight: 600"


def parity_words(run: Mapping[str, Any]) -> str | None:
    """How many pages of a run have which verdict: "12 identical, 2 within"; None where none was compared."""
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
    """What the history could not read, with the reasons."""
    return pd.DataFrame({"entry": list(problems), "reason": list(problems.values())}, dtype="str")


def record_facts(runs: pd.DataFrame, run_ids: Sequence[str]) -> pd.DataFrame:
    """The records' own fields in the form of the query `facts`: run_id, section, name, value."""
    by_id = runs.set_index("run_id")
    rows = [
        {"run_id": run_id, "section": "run", "name": name, "value": _fact(by_id.at[run_id, name])}
        for name in RECORD_FIELDS
        for run_id in run_ids
    ]
    return pd.DataFrame(rows, columns=["run_id", "section", "name", "value"])


def _fact(value: Any) -> str | None:
    if not has_value(value):
        return None
    if isinstance(value, str):
        return value
    return ", ".join(value) if hasattr(value, "__len__") else "yes" if value else "no"


def side_by_side(facts: pd.DataFrame, run_ids: Sequence[str], differing: bool) -> pd.DataFrame:
    """Facts with a column a run, in the order given: section, name, runs. None where a run has no such value.

    `differing` leaves out what all runs have in common.
    """
    values: dict[tuple[str, str], dict[str, str | None]] = {}
    for row in facts.itertuples(index=False):
        of_name = values.setdefault((str(row.section), str(row.name)), {})
        of_name[str(row.run_id)] = row.value if has_value(row.value) else None
    rows = []
    for (section, name), of_run in values.items():
        cells = [of_run.get(run_id) for run_id in run_ids]
        if not differing or differ(section, name, cells):
            rows.append([section, name, *cells])
    return pd.DataFrame(rows, columns=["section", "name", *run_ids], dtype=object)

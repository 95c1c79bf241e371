"""Times of runs as people compare them: stages in their order, B against A page by page."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dsocr_core.base.formatting import duration, plural, significant, speed_ratio
from dsocr_core.models.family import inside_prefill
from dsocr_core.models.stages import Stage
from dsocr_core.runs.labels import short
from dsocr_core.runs.statistics import COPY, SURE, TOTAL, with_spread

VISION = "vision"
"""All of vision in one, as other programs time it."""
WHOLE = "whole page"
"""The stages that follow one another, summed page by page."""
ORDER: tuple[str, ...] = (
    Stage.PREPROCESS, Stage.TOKENIZER, VISION, *(stage.value for stage in inside_prefill()), Stage.PREFILL,
    Stage.DECODE, Stage.POSTPROCESS,
)  # fmt: skip


def in_order(stages: Iterable[str]) -> list[str]:
    """Stages as they run; foreign names after them, the whole page last."""
    there = set(stages)
    own = [str(stage) for stage in ORDER if stage in there]
    return [*own, *sorted(there - {*own, WHOLE}), *([WHOLE] if WHOLE in there else [])]


def stage_rows(summary: pd.DataFrame, run_ids: Iterable[str]) -> pd.DataFrame:
    """The query `stage_summary` in the order of the runs, with `statistics.with_spread`."""
    order = {run_id: number for number, run_id in enumerate(run_ids)}
    rows = summary[summary["run_id"].isin(order)]
    rows = with_spread(rows)
    rank = {stage: number for number, stage in enumerate(in_order(rows["stage"]))}
    rows["_run"], rows["_stage"] = rows["run_id"].map(order), rows["stage"].map(rank)
    return rows.sort_values(["_run", "backend", "_stage"], ignore_index=True).drop(columns=["_run", "_stage"])


# --- B against A ----------------------------------------------------------------------------------


def whole_pages(
    totals: pd.DataFrame, pairs: pd.DataFrame, a: tuple[str, str], b: tuple[str, str]
) -> pd.DataFrame:
    """Pages as rows of the query `pairs` of a stage WHOLE, from the query `page_totals`.

    Only pages that `pairs` has, and whose same stages were timed on both sides: a sum that lacks a stage is
    no faster. `a` and `b` are run and backend.
    """

    def side(run: tuple[str, str]) -> pd.DataFrame:
        mine = totals[(totals["run_id"] == run[0]) & (totals["backend"] == run[1])]
        return mine.set_index("page")[["milliseconds", "stages"]]

    both = side(a).add_suffix("_a").join(side(b).add_suffix("_b"), how="inner")
    both = both[both.index.isin(pairs["page"])]
    same = [list(x) == list(y) for x, y in zip(both["stages_a"], both["stages_b"], strict=True)]
    both = both[np.array(same, bool)]
    return pd.DataFrame(
        {"stage": WHOLE, "page": both.index, "a_ms": both["milliseconds_a"].to_numpy(),
         "b_ms": both["milliseconds_b"].to_numpy()}
    )  # fmt: skip


def comparison(found: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """`speed.compare_speed` with all stages in order.

    `rows` are the `stage_rows` of A and B with a column `side`: a stage that has no pairs stays in the
    table, with the reason and no verdict.
    """
    found = found.assign(stage=found["stage"].replace(TOTAL, WHOLE))
    missing = []
    for stage, of_stage in rows[~rows["stage"].isin(found["stage"])].groupby("stage"):
        value = of_stage.set_index("side")["value"].to_dict()
        why = "no page in both" if of_stage["of_pages"].all() else "only a mean is recorded"
        if len(value) < 2:
            why = f"not measured in {'B' if 'a' in value else 'A'}"
        counts = dict.fromkeys(("n", "runs_a", "runs_b", "pages"), 0)
        medians = {f"median_{side}": float(value.get(side, np.nan)) for side in "ab"}
        missing.append({"stage": stage, **counts, **medians, "verdict": "inconclusive", "why": why})
    whole = pd.concat([frame for frame in (found, pd.DataFrame(missing)) if len(frame)] or [found])
    whole = whole.reindex(columns=whole.columns.union(found.columns.union(["ratio"]), sort=False))
    order = {stage: number for number, stage in enumerate(in_order(whole["stage"]))}
    return whole.sort_values("stage", key=lambda stages: stages.map(order), ignore_index=True)


def sentence(found: pd.DataFrame) -> str:
    """Say how B stands to A on whole pages, else in the longest stage; faster and slower with an interval.

    `found` is `comparison`, or `speed.compare_speed`.
    """
    with_pages = found.assign(stage=found["stage"].replace(TOTAL, WHOLE))[found["pages"] > 0]
    whole = with_pages[with_pages["stage"] == WHOLE]
    whole = whole if len(whole) else with_pages.sort_values("median_a").tail(1)
    if whole.empty:
        return "Not measured: no page was timed in both."
    row = whole.iloc[0]
    times = f"{row['stage']} {duration(row['median_a'])} → {duration(row['median_b'])}"
    of = f"{row['runs_a']} and {row['runs_b']} runs"
    if row["verdict"] != "inconclusive":
        said = f"B is {speed_ratio(row['ratio'], 1.0)}" if row["verdict"] in SURE else "B is as fast"
        return f"{said} ({significant(row['low'])} to {significant(row['high'])} of A's time; {of}): {times}."
    why = row["why"] or f"the interval is too wide ({of})"
    return f"Inconclusive, {why}: {times}."


def left_out(coverage: pd.DataFrame) -> pd.DataFrame:
    """Take from the query `coverage` each reason why a page is not compared, with pages, stages and names."""
    rows = []
    for reason, group in coverage[coverage["outcome"] != "compared"].groupby("outcome", sort=True):
        pages = sorted(group["page"].unique())
        names = ", ".join([short(page, 40) for page in pages[:8]] + ["…"] * (len(pages) > 8))
        rows.append((reason, len(pages), ", ".join(in_order(group["stage"])), names))
    return pd.DataFrame(rows, columns=["reason", "pages", "stages", "which pages"])


_OUTCOMES = {
    "page not in A": "not in A", "page not in B": "not in B",
    "stage not measured in A": "without this stage in A",
    "stage not measured in B": "without this stage in B",
    "another image under the same name": "of another image under the same name",
}  # fmt: skip
"""Outcomes of the query `coverage` as they stand behind a number of pages."""


def coverage_words(coverage: pd.DataFrame) -> str:
    """Say how many pages are in both, and why the others are not. A page that is read again is one page."""
    coverage = coverage.assign(page=coverage["page"].str.replace(COPY, "", regex=True))
    compared = set(coverage.loc[coverage["outcome"] == "compared", "page"])
    rest = coverage[~coverage["page"].isin(compared)].drop_duplicates("page")
    words = f"{len(compared):,} of {plural(coverage['page'].nunique(), 'page')} compared."
    reasons = rest["outcome"].value_counts().items()
    if parts := [f"{count:,} {_OUTCOMES.get(reason, reason)}" for reason, count in reasons]:
        words += f" Left out: {', '.join(parts)}."
    return words

"""FLOP gaps of runs for people: the stages of one run by what they lose, and one sentence over all runs."""

from __future__ import annotations

import pandas as pd

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import duration, percent, plural, significant
from dsocr_core.models.stages import Stage
from dsocr_core.runs.history import History

NOT_COUNTED = "recorded without FLOPs"
"""Reason of the query `gap_missing` for a run whose FLOPs can be counted."""


def stage_gaps(history: History, run_id: str, backend: str = "") -> pd.DataFrame:
    """A run's stages by lost time, largest first, of one backend (default: the first). Raises DsocrError."""
    history.record(run_id)
    rows, _ = history.query("gap_stages", run_ids=[run_id])
    if rows.empty:
        missing, _ = history.query("gap_missing")
        reason = missing.loc[missing["run_id"] == run_id, "reason"]
        words = reason.iloc[0] if len(reason) else "it is in the trash"
        raise DsocrError(f"run {run_id}: {words}")
    found = rows[rows["backend"] == (backend or rows["backend"].iloc[0])]
    if found.empty:
        others = ", ".join(rows["backend"].unique())
        raise DsocrError(f"run {run_id} has no FLOPs of {backend:.60}: choose {others}")
    return found


def exact_sentence(rows: pd.DataFrame) -> str:
    """Count exact runs, with the largest gap of others: "FLOPs of 34 of 34 runs are exact."."""
    known = rows[rows["gap_flops"].notna()]
    if known.empty:
        return "No run has FLOPs that were counted."
    gaps = known.groupby("run_id")["gap_flops"].sum()
    exact = int((gaps == 0).sum())
    words = f"FLOPs of {exact:,} of {plural(len(gaps), 'run')} are exact"
    if off := len(gaps) - exact:
        worst = known["gap_percent"].abs().max()
        words += f"; {plural(off, 'other')} {'is' if off == 1 else 'are'} off by up to {percent(worst)}"
    return f"{words}."


def lost_sentence(stages: pd.DataFrame) -> str:
    """Say what a run loses and where: `stages` are those of one run and backend, the largest loss first."""
    bounded = stages[stages["lost_ms"].notna()]
    if bounded.empty:
        reasons = stages["no_bound"].dropna()
        return f"No lower bound of this run: {reasons.iloc[0] if len(reasons) else 'no times'}."
    whole, bound = bounded["milliseconds"].sum(), bounded["lower_bound_ms"].sum()
    first = bounded.iloc[0]
    share = first["bandwidth_share"] if first["bound_by"] == "memory" else first["peak_share"]
    limit = "its bandwidth" if first["bound_by"] == "memory" else "its peak"
    name = "the language model's prefill" if first["stage"] == Stage.PREFILL else first["stage"]
    return (
        f"The model's stages take {duration(whole)} a page, at least {duration(bound)} "
        f"({significant(whole / bound)}x). {duration(first['lost_ms'])} of the {duration(whole - bound)} "
        f"lost are {name}: bound by {first['bound_by']}, at {percent(100 * share)} of {limit}."
    )

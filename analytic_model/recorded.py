"""Shares of what a card can do that recorded runs reached."""

from __future__ import annotations

import pandas as pd

from dsocr_core.runs.history import History


def utilised(history: History, runs: pd.DataFrame, backend: str) -> pd.DataFrame:
    """Say what runs made of their cards: run_id, mfu, floor_share. Raises HistoryError.

    FLOPs that the result needs over the time of the stages and the card's peak, and the lower bounds of the
    stages over their time. Runs without FLOPs or a bound are left out: see the query `gap_stages`.
    """
    rows, _ = history.query("gap_stages", run_ids=runs["run_id"].tolist())
    rows = rows[(rows["backend"] == backend) & rows["lower_bound_ms"].notna()]
    needed = rows["peak_share"] * rows["milliseconds"]
    sums = rows.assign(needed=needed).groupby("run_id")[["needed", "lower_bound_ms", "milliseconds"]].sum()
    shares = sums[["needed", "lower_bound_ms"]].div(sums["milliseconds"], axis=0)
    return shares.set_axis(["mfu", "floor_share"], axis=1).reset_index()

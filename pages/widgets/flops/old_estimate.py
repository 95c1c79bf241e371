"""How the old estimate grew into the truth, as DataFrames. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd

from analytic_model.history_of_estimate import Step
from dsocr_core.stages import Stage
from pages.widgets.flops.gaps import Counted
from pages.widgets.shared.amounts import amount, percent_of, signed


def estimate_steps(steps: Sequence[Step], counted: Counted | None = None) -> pd.DataFrame:
    """The waterfall's bars: label, assumption, whole, stage, start, flops.

    The first and the last bars stand on zero; each between them hangs what it mends on what stood before.
    The last is what was counted, or the prediction where nothing was.
    """
    rows: list[dict[str, object]] = []

    def add(label: str, assumption: str, whole: bool, start: float, flops: Mapping[Stage, int]) -> None:
        for stage, count in flops.items():
            rows.append(
                {"label": label, "assumption": assumption, "whole": whole, "stage": stage.value,
                 "start": start, "flops": count}
            )  # fmt: skip
            start += count

    add(steps[0].name, steps[0].assumption, True, 0, steps[0].flops)
    for before, after in pairwise(steps):
        change = {stage: count - before.flops[stage] for stage, count in after.flops.items()}
        add(f"+ {after.name}", after.assumption, False, before.total, change)
    last = steps[-1].flops
    if counted is None:
        add("= predicted", "torch's counter has not run on this workload yet", True, 0, last)
    else:
        measured = {stage: sum(counted.get(stage, {}).values()) for stage in last}
        add("= measured", "torch's counter", True, 0, measured)
    return pd.DataFrame(rows)


def shown_estimate(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a step of `estimate_steps`: what each stage gains, and how far below the end the sum stands."""
    end = frame.loc[frame["label"] == frame["label"].iloc[-1], "flops"].sum()
    rows, so_far = [], 0
    for label, part in frame.groupby("label", sort=False):
        whole = bool(part["whole"].iloc[0])
        so_far = part["flops"].sum() + (0 if whole else so_far)
        rows.append(
            {
                "step": label,
                "takes for true": part["assumption"].iloc[0],
                **{
                    name: (amount if whole else signed)(float(flops), "FLOP")
                    for name, flops in zip(part["stage"], part["flops"], strict=True)
                },
                "sum": amount(float(so_far), "FLOP"),
                "off by": percent_of(100 * float(so_far - end) / float(end)) if end else "–",
            }
        )
    return pd.DataFrame(rows)

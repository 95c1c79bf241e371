"""Prediction against torch's counter: each stage's gap, split into its causes. Pure.

A cause is a convention in which the two may differ; what no convention explains is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from analytic_model.policy import Policy
from analytic_model.predict import STAGES, Prediction, predict
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.stages import Stage
from pages.widgets.flops.tables import spans, stage_name
from pages.widgets.shared.amounts import amount, percent_of, signed

Counted = Mapping[Stage, Mapping[str, int]]
"""FLOPs by stage and operator as torch counts them; prefill is the language model alone."""
CAUSES = ("window padding", "lm_head positions", "causal convention", "FlashAttention core", "nesting")
UNEXPLAINED = "unexplained"


def gap_causes(
    config: ModelConfig, workload: Workload, policy: Policy, nested: bool, counted: Counted, attention: str
) -> pd.DataFrame:
    """Each stage's gap (analytic - measured) by cause: stage, analytic, measured, cause, flops, percent.

    Starting from the conventions of the measurement, the policy's are taken over one by one; what each
    changes is its cause. What the first prediction already misses is unexplained. `attention` is the
    decoder's in the measurement. Percent of measured; NaN where nothing was measured.
    """
    measuring = Policy(attention=attention, dtype=policy.dtype)  # type: ignore[arg-type]
    padding = replace(measuring, vision_window_padding=policy.vision_window_padding)
    head = replace(padding, lm_head=policy.lm_head)
    causal = replace(head, causal=policy.causal)
    ladder = [predict(config, workload, step) for step in (measuring, padding, head, causal, policy)]
    rows = []
    for stage in STAGES:
        measured = sum(counted.get(stage, {}).values())
        heights = [step.stages[stage].cost.flops for step in ladder]
        analytic = ladder[-1].with_nested(stage).cost.flops if nested else heights[-1]
        heights.append(analytic)
        causes = {UNEXPLAINED: heights[0] - measured} | {
            cause: after - before for cause, before, after in zip(CAUSES, heights, heights[1:], strict=False)
        }
        for cause in (*CAUSES, UNEXPLAINED):
            rows.append(
                {
                    "stage": stage.value,
                    "analytic": analytic,
                    "measured": measured,
                    "cause": cause,
                    "flops": causes[cause],
                    "percent": _percent(causes[cause], measured),
                }
            )
    return pd.DataFrame(rows)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else (0.0 if not part else float("nan"))


def gap_table(causes: pd.DataFrame) -> pd.DataFrame:
    """`gap_causes` with a row a stage and a column a cause, in FLOP."""
    table = causes.pivot(index="stage", columns="cause", values="flops").loc[
        [stage.value for stage in STAGES]
    ]
    sides = causes.drop_duplicates("stage").set_index("stage")[["analytic", "measured"]]
    table = sides.join(table[[*CAUSES, UNEXPLAINED]])
    table.insert(2, "gap", table["analytic"] - table["measured"])
    table.insert(3, "gap_percent", [
        _percent(gap, whole) for gap, whole in zip(table["gap"], table["measured"], strict=True)
    ])  # fmt: skip
    return table.reset_index()


def shown_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """`gap_table` for people; causes that explain nothing are left out."""
    causes = [cause for cause in CAUSES if (table[cause] != 0).any()]
    return pd.DataFrame(
        {
            "stage": [
                "prefill with vision" if nested else stage_name(Stage(name))
                for name, nested in zip(table["stage"], table["nesting"] != 0, strict=True)
            ],
            "analytic": [amount(value, "FLOP") for value in table["analytic"]],
            "measured": [amount(value, "FLOP") for value in table["measured"]],
            "gap": [signed(value, "FLOP") for value in table["gap"]],
            "gap (%)": [percent_of(value) for value in table["gap_percent"]],
            **{cause: [signed(value, "FLOP") for value in table[cause]] for cause in causes},
            UNEXPLAINED: [signed(value, "FLOP") for value in table[UNEXPLAINED]],
        }
    )


def counted_spans(prediction: Prediction, counted: Counted) -> pd.DataFrame:
    """Bars of what is predicted over what was counted."""
    analytic = {stage: float(prediction.stages[stage].cost.flops) for stage in STAGES}
    measured = {stage: float(sum(counted.get(stage, {}).values())) for stage in STAGES}
    return pd.concat(
        [spans("FLOPs", "analytic", analytic), spans("FLOPs", "measured", measured)], ignore_index=True
    )


def operator_gaps(prediction: Prediction, counted: Counted) -> pd.DataFrame:
    """What torch's counter knows, operator by operator: stage, operator, analytic, measured, gap in FLOP."""
    rows = []
    for stage in STAGES:
        analytic = {name: cost.flops for name, cost in prediction.stages[stage].by_operator().items()}
        measured = counted.get(stage, {})
        for name in sorted({*(key for key, flops in analytic.items() if flops), *measured}):
            here, there = analytic.get(name, 0), measured.get(name, 0)
            rows.append(
                {
                    "stage": stage.value,
                    "operator": name,
                    "analytic": here,
                    "measured": there,
                    "gap": here - there,
                }
            )
    return pd.DataFrame(rows, columns=["stage", "operator", "analytic", "measured", "gap"])


def shown_operator_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "stage": [stage_name(Stage(name)) for name in frame["stage"]],
            "operator": frame["operator"],
            "analytic": [f"{value:,}" for value in frame["analytic"]],
            "measured": [f"{value:,}" for value in frame["measured"]],
            "gap": [f"{value:,}" for value in frame["gap"]],
        }
    )

"""Tables of costs, times and gaps, from hand-made figures."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from analytic_model import frames
from analytic_model.frames import CAUSES, EVERYTHING, UNEXPLAINED, WITH_VISION, Counted
from analytic_model.hardware import Hardware
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.workload import Workload
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.models.family import FIRST, load_config
from dsocr_core.models.stages import Stage

CONFIG = load_config(EMBEDDED_CHECKPOINT)
WORKLOAD = Workload.from_image(1280, 640, prompt_tokens=10, decode_tokens=4)
DEVICE = Hardware("made up", 2.0, 1.0, 100.0, None, "nowhere")
TIMES = {
    Stage.SAM: 10.0, Stage.CLIP: 20.0, Stage.PROJECTOR: 3.0, Stage.VISION_FUSION: 4.0, Stage.PREFILL: 50.0,
    Stage.DECODE: 100.0,
}  # fmt: skip
"""Vision is 37 of prefill's 50 ms."""


def test_the_cost_table_adds_up() -> None:
    prediction = predict(CONFIG, WORKLOAD)
    costs = frames.stage_costs(prediction, DEVICE)
    assert list(costs["stage"]) == [stage.value for stage in FIRST.computed]
    assert (costs["bound_s"] == costs[["compute_s", "memory_s"]].max(axis=1)).all()
    whole = frames.summed_costs(costs, prediction.parameters["total"]).set_index("stage")
    assert whole.loc[EVERYTHING, "flops"] == prediction.total.flops
    assert whole.loc[EVERYTHING, "parameters"] == prediction.parameters["total"]
    assert whole.loc[WITH_VISION, "flops"] == prediction.with_nested(Stage.PREFILL).cost.flops
    assert list(whole.index) == [
        *(stage.value for stage in FIRST.computed[:-1]),
        WITH_VISION,
        "decode",
        EVERYTHING,
    ]
    assert whole.loc["vision_fusion", "flops"] == 0


def test_operators_of_several_views_are_one_row_each() -> None:
    stage = predict(CONFIG, WORKLOAD).stages[Stage.SAM]
    frame = frames.operators(stage)
    assert not frame.duplicated(["module", "operator"]).any()
    assert frame["flops"].sum() == stage.cost.flops
    assert frame["parameters"].sum() == stage.cost.parameters
    assert frame["share_of_flops"].sum() == pytest.approx(1)
    assert frame["flops"].is_monotonic_decreasing
    nothing = frames.operators(predict(CONFIG, WORKLOAD).stages[Stage.VISION_FUSION])
    assert set(nothing["share_of_flops"]) == {0.0}


def test_recorded_times_are_set_against_their_bounds() -> None:
    prediction = predict(CONFIG, WORKLOAD)
    frame = frames.times(prediction, DEVICE, TIMES).set_index("stage")
    expected = {"sam": 0.01, "clip": 0.02, "projector": 0.003, "vision_fusion": 0.004, "prefill": 0.013,
                WITH_VISION: 0.05, "decode": 0.1}  # fmt: skip
    assert frame["measured_s"].to_dict() == pytest.approx(expected)
    sam = prediction.stages[Stage.SAM].cost.flops
    assert frame.loc["sam", "flops_per_s"] == pytest.approx(sam / 0.010)
    assert frame.loc["sam", "mfu"] == pytest.approx(sam / 0.010 / 2e12)
    inner = [stage.value for stage in FIRST.computed[:-1]]
    assert frame.loc[WITH_VISION, "bound_s"] == pytest.approx(frame.loc[inner, "bound_s"].sum())
    assert frame.loc["decode", "above_bound"] == pytest.approx(0.1 / frame.loc["decode", "bound_s"])


def test_without_the_devices_peaks_there_is_a_time_and_no_bound() -> None:
    frame = frames.times(predict(CONFIG, WORKLOAD), None, {Stage.DECODE: 100.0}).set_index("stage")
    assert frame.loc["decode", "measured_s"] == 0.1
    assert frame[["bound_s", "above_bound", "mfu", "bandwidth_share"]].isna().all(axis=None)
    assert frame["measured_s"].isna().sum() == len(frame) - 1


def test_points_of_a_bound_lie_on_the_roof_and_recorded_ones_at_their_intensity() -> None:
    prediction = predict(CONFIG, WORKLOAD)
    costs = frames.stage_costs(prediction, DEVICE)
    points = frames.roofline_points(costs, frames.times(prediction, DEVICE, TIMES))
    on_roof = points[(points["kind"] == "bound") & (points["flops_per_s"] > 0)]
    roof = (on_roof["intensity"] * 100e9).clip(upper=2e12)
    assert on_roof["flops_per_s"].to_list() == pytest.approx(roof.to_list())
    both = points.pivot(index="stage", columns="kind", values="intensity").drop("vision_fusion")
    assert (both["bound"] == both["measured"]).all()


def counted(policy: Policy) -> Counted:
    return {
        stage: {name: part.flops for name, part in cost.by_operator().items() if part.flops}
        for stage, cost in predict(CONFIG, WORKLOAD, policy).stages.items()
    }


def gaps(policy: Policy, nested: bool = False, of: Counted | None = None) -> pd.DataFrame:
    found = frames.gaps(CONFIG, WORKLOAD, policy, nested, of or counted(Policy()), "sdpa")
    return found.set_index("stage")


@pytest.mark.parametrize(
    ("policy", "nested", "cause", "stages"),
    [(Policy(vision_window_padding=False), False, "window padding", {"sam"}),
     (Policy(lm_head="all"), False, "lm_head positions", {"prefill"}),
     (Policy(causal="halved"), False, "causal convention", {"prefill"}),
     (Policy(attention="flash_attention_2"), False, "FlashAttention core", {"prefill", "decode"}),
     (Policy(), True, "nesting", {"prefill"})],
)  # fmt: skip
def test_each_switch_is_one_cause(policy: Policy, nested: bool, cause: str, stages: set[str]) -> None:
    made = gaps(policy, nested)[[*CAUSES, UNEXPLAINED]] != 0
    assert {name for name in made if made[name].any()} == {cause}
    assert set(made.index[made[cause]]) == stages


def test_the_causes_of_a_stage_add_up_to_its_gap() -> None:
    policy = Policy(False, "halved", "all", "flash_attention_2", vision_window_padding=False)
    off = {stage: dict(flops) for stage, flops in counted(Policy()).items()}
    off[Stage.PREFILL]["mm"] -= 1000
    table = gaps(policy, nested=True, of=off)
    assert (table[[*CAUSES, UNEXPLAINED]].sum(axis=1) == table["gap"]).all()
    assert table[UNEXPLAINED].to_dict() == dict.fromkeys(table.index, 0) | {"prefill": 1000}
    # lm_head at the prompt's other positions: a product of each with (C, V).
    decoder, others = CONFIG.decoder, WORKLOAD.sequence_length - 1
    assert table.loc["prefill", "lm_head positions"] == 2 * others * decoder.hidden_size * decoder.vocab_size


def test_a_stage_in_which_nothing_is_counted_has_no_share() -> None:
    table = gaps(Policy(), of={**counted(Policy()), Stage.CLIP: {}})
    assert math.isnan(table.loc["clip", "gap_share"])
    assert table.loc["vision_fusion", "gap_share"] == 0


def test_operator_gaps_name_what_either_side_has() -> None:
    off = {stage: dict(flops) for stage, flops in counted(Policy()).items()}
    off[Stage.SAM]["addmm"] += 7
    off[Stage.SAM]["baddbmm"] = 3
    frame = frames.operator_gaps(predict(CONFIG, WORKLOAD), off)
    wrong = frame[frame["gap"] != 0].set_index("operator")["gap"]
    assert wrong.to_dict() == {"addmm": -7, "baddbmm": -3}

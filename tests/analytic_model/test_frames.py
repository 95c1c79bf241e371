"""Tables of costs, from hand-made figures."""

from __future__ import annotations

import pytest

from analytic_model import frames
from analytic_model.frames import EVERYTHING, WITH_VISION
from analytic_model.hardware import Hardware
from analytic_model.predict import predict
from analytic_model.workload import Workload
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.models.family import FIRST, load_config
from dsocr_core.models.stages import Stage

CONFIG = load_config(EMBEDDED_CHECKPOINT)
WORKLOAD = Workload.from_image(1280, 640, prompt_tokens=10, decode_tokens=4)
DEVICE = Hardware("made up", 2.0, 1.0, 100.0, None, "nowhere")


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

"""Tables of costs, times and gaps, from hand-made figures."""

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

"""Time bounds by hand, and the list of devices."""

import pytest

from analytic_model import roofline
from analytic_model.hardware import (
    HARDWARE,
    Hardware,
    HardwareError,
    hardware_named,
    measured_hardware,
    with_figures,
)
from analytic_model.ops import Cost
from analytic_model.policy import Policy
from analytic_model.predict import decode_step, predict
from analytic_model.roofline import bound, least_work
from analytic_model.stage_cost import OperatorCost, StageCost
from analytic_model.workload import Workload
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.stages import Stage

TOY = Hardware("toy", 100.0, 10.0, 1000, None, "nowhere")  # 100 TFLOP/s, 1 TB/s: ridge at 100 FLOP/B


def stage(flops: int, weights: int, activations: int = 0, boundary: int = 0) -> StageCost:
    cost = Cost(flops=flops, bytes_read=weights + activations, weight_bytes=weights)
    return StageCost(Stage.PREFILL, (OperatorCost(Stage.PREFILL, "m", "mm", 1, cost),), boundary)


def test_a_stage_of_high_intensity_is_bound_by_compute() -> None:
    work = bound(stage(10**12, 10**9), TOY, "bfloat16")
    assert (work.compute_ms, work.memory_ms, work.time_ms) == (10.0, 1.0, 10.0)
    assert (work.limit, work.intensity) == ("compute", 1000.0)


def test_a_stage_of_low_intensity_is_bound_by_memory() -> None:
    work = bound(stage(10**9, 10**9), TOY, "bfloat16")
    assert (work.time_ms, work.limit, work.intensity) == (1.0, "memory", 1.0)
    assert bound(stage(10**9, 10**9), TOY, "float32").compute_ms == 0.1


def test_compulsory_bytes_leave_out_what_fusion_saves() -> None:
    work = stage(0, 10**9, activations=5 * 10**9, boundary=10**9)
    assert bound(work, TOY, "bfloat16").memory_ms == 2.0
    assert bound(work, TOY, "bfloat16", "operators").memory_ms == 6.0


def test_the_floor_of_a_decoded_token(published: ModelConfig) -> None:
    """0.27-0.29 ms on an H200 at its measured bandwidth, at prompts of about 700 tokens."""
    work = bound(decode_step(published, 703), HARDWARE["h200-measured"], "bfloat16")
    assert work.limit == "memory"
    assert 0.27 < work.time_ms < 0.29


def test_measured_times_are_above_their_bounds(published: ModelConfig) -> None:
    """Gundam 2x2, 729 prompt tokens, eager engine on an H200: 76 ms prefill, sam 21 ms, clip 8 ms."""
    workload = Workload.from_image(1300, 1300, prompt_tokens=36, decode_tokens=500)
    assert workload.sequence_length == 729
    prediction = predict(published, workload)
    device = HARDWARE["h200-measured"]
    for part, measured_ms in ((Stage.SAM, 21.0), (Stage.CLIP, 8.0)):
        work = bound(prediction.stages[part], device, "bfloat16")
        assert work.limit == "compute"
        assert 0 < work.time_ms < measured_ms
    assert roofline.prefill_ms(prediction, device) < 76


def test_least_work_is_the_least(published: ModelConfig) -> None:
    workload = Workload.from_image(1300, 1300, decode_tokens=9)
    honest = Policy(attention="eager", lm_head="all", ignore_torch_unsupported_flops=False)
    usual, least = predict(published, workload, honest), predict(published, workload, least_work(honest))
    assert all(
        least.stages[part].cost.flops <= usual.stages[part].cost.flops
        and least.stages[part].compulsory_bytes <= usual.stages[part].compulsory_bytes
        for part in usual.stages
    )


def test_every_device_names_its_source() -> None:
    assert hardware_named("L40S") is HARDWARE["l40s"]
    for device in HARDWARE.values():
        claims = ("press reports", "bandwidth as users name it")  # of a card without a sheet
        assert device.source.startswith(("https://", "NVIDIA ", "measured here", *claims))
    own = measured_hardware(500, 2000)
    assert (own.peak_flops("bfloat16"), own.bandwidth) == (500e12, 2e12)


def test_a_users_figures_win_over_the_sheets() -> None:
    own = with_figures(HARDWARE["l4"], None, 250.0)
    assert own is not None and (own.peak_flops("bfloat16"), own.bandwidth) == (121e12, 250e9)
    assert "L4" in own.name and own.source.startswith("given by the user")
    alone = with_figures(None, 100.0, 500.0)
    assert alone is not None and (alone.peak_flops("float32"), alone.bandwidth) == (100e12, 5e11)
    assert with_figures(None, None, None) is None
    with pytest.raises(HardwareError, match="give both --peak"):
        with_figures(None, 100.0, None)


def test_hardware_that_cannot_be_is_refused() -> None:
    with pytest.raises(HardwareError, match="unknown hardware 'gtx': choose one of b200"):
        hardware_named("gtx")
    with pytest.raises(HardwareError, match="bandwidth_gb_s is 0"):
        measured_hardware(500, 0)
    with pytest.raises(HardwareError, match="bfloat16_tflops is nan"):
        measured_hardware(float("nan"), 1)
    with pytest.raises(HardwareError, match="float32 peak of H200, measured here is not known"):
        HARDWARE["h200-measured"].peak_flops("float32")

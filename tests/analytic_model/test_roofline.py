"""Time bounds by hand, and the list of devices."""

import pytest

from analytic_model.hardware import (
    HARDWARE,
    Hardware,
    card_named,
    hardware_named,
    with_figures,
)
from analytic_model.ops import Cost
from analytic_model.policy import DTYPE_BYTES, Dtype, Policy
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


def test_intensity_decides_what_binds_a_stage() -> None:
    work = bound(stage(10**12, 10**9), TOY, "bfloat16")
    assert (work.compute_ms, work.memory_ms, work.time_ms) == (10.0, 1.0, 10.0)
    assert (work.limit, work.intensity) == ("compute", 1000.0)
    work = bound(stage(10**9, 10**9), TOY, "bfloat16")
    assert (work.time_ms, work.limit, work.intensity) == (1.0, "memory", 1.0)
    assert bound(stage(10**9, 10**9), TOY, "float32").compute_ms == 0.1
    fused = stage(0, 10**9, activations=5 * 10**9, boundary=10**9)
    assert bound(fused, TOY, "bfloat16").memory_ms == 2.0  # what fusion saves is left out


def test_bounds_of_the_published_model_are_below_what_was_measured(published: ModelConfig) -> None:
    """A decoded token takes 0.27-0.29 ms at prompts of about 700 tokens, by an H200's measured bandwidth;
    Gundam 2x2 of 729 prompt tokens on the eager engine: 76 ms prefill, sam 21 ms, clip 8 ms."""
    device = HARDWARE["h200-measured"]
    token = bound(decode_step(published, 703), device, "bfloat16")
    assert token.limit == "memory" and 0.27 < token.time_ms < 0.29
    workload = Workload.from_image(1300, 1300, prompt_tokens=36, decode_tokens=500)
    assert workload.sequence_length == 729
    prediction = predict(published, workload)
    for part, measured_ms in ((Stage.SAM, 21.0), (Stage.CLIP, 8.0)):
        work = bound(prediction.stages[part], device, "bfloat16")
        assert work.limit == "compute" and 0 < work.time_ms < measured_ms
    parts = [cost for name, cost in prediction.stages.items() if name != Stage.DECODE]
    assert sum(bound(cost, device, "bfloat16").time_ms for cost in parts) < 76


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_the_least_work_reads_the_head_once_a_token_in_one_byte_an_element(
    published: ModelConfig, dtype: Dtype
) -> None:
    """129,280 x 1,280 elements: of 1,148,257,280 bytes of weights in bf16, a token needs 982,778,880."""
    policy, elements = Policy(dtype=dtype), 165_478_400
    workload = Workload.from_image(1300, 1300, prompt_tokens=36, decode_tokens=500)
    usual, least = (predict(published, workload, each).stages for each in (policy, least_work(policy)))
    for part, tokens in ((Stage.PREFILL, 1), (Stage.DECODE, 499)):
        of_usual, of_least = (
            next(each.cost for each in costs[part].operators if each.module == "lm_head")
            for costs in (usual, least)
        )
        assert of_usual.weight_bytes == tokens * elements * DTYPE_BYTES[dtype]
        assert of_least.weight_bytes == tokens * elements
        assert of_least.activation_bytes == of_usual.activation_bytes
        assert of_least.flops == of_usual.flops
    assert decode_step(published, 729, least_work(Policy())).cost.weight_bytes == 982_778_880


def test_every_device_names_its_source_and_a_users_figures_win() -> None:
    assert hardware_named("L40S") is HARDWARE["l40s"]
    claims = ("press reports", "bandwidth as users name it")  # of a card without a sheet
    for device in HARDWARE.values():
        assert device.source.startswith(("https://", "NVIDIA ", "measured here", *claims))
    own = with_figures(HARDWARE["l4"], None, 250.0)
    assert own is not None and (own.peak_flops("bfloat16"), own.bandwidth) == (121e12, 250e9)
    assert "L4" in own.name and own.source.startswith("given by the user")
    alone = with_figures(None, 100.0, 500.0)
    assert alone is not None and (alone.peak_flops("float32"), alone.bandwidth) == (100e12, 5e11)
    assert with_figures(None, None, None) is None


@pytest.mark.parametrize(
    ("name", "capability", "bandwidth"),
    [
        ("NVIDIA H100 PCIe", "9.0", 2000), ("NVIDIA H100 80GB HBM3", "9.0", 3350),
        ("NVIDIA H200", "9.0", 4800), ("NVIDIA A100-SXM4-40GB", "8.0", 1555),
        ("NVIDIA A100 80GB PCIe", "8.0", 1935), ("NVIDIA L4", "8.9", 300),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0", 896), ("NVIDIA GeForce RTX 5090", "12.0", 1792),
        # Others, which have no figures here: no card, rather than a near one.
        ("NVIDIA GH200 144G HBM3e", "9.0", None), ("NVIDIA A10G", "8.6", None), ("NVIDIA L40S", "9.0", None),
        ("NVIDIA GeForce RTX 3090 Ti", "8.6", None), ("NVIDIA H20-3e", "9.0", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", None), ("", None, None), (None, "9.0", None),
    ],
)  # fmt: skip
def test_a_card_is_known_by_name_and_capability(
    name: str | None, capability: str | None, bandwidth: float | None
) -> None:
    card = card_named(name, capability)
    assert (card.bandwidth_gb_s if card else None) == bandwidth

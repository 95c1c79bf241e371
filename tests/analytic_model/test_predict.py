"""The prediction against the published facts, against loops, and against the weights themselves."""

from dataclasses import replace

import pytest

from analytic_model.measure import Meter
from analytic_model.ops import Cost
from analytic_model.policy import Policy
from analytic_model.predict import decode_step, kv_cache_bytes, parameters, predict
from analytic_model.workload import Workload
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.stages import Stage

BASE = Workload.from_image(1000, 1000, "base")
GUNDAM = Workload.from_image(1300, 1300, "gundam", decode_tokens=500)


def flops(config: ModelConfig, workload: Workload, policy: Policy | None = None) -> dict[Stage, int]:
    return {name: stage.cost.flops for name, stage in predict(config, workload, policy).stages.items()}


@pytest.mark.parametrize(
    ("workload", "sam", "clip", "projector"),
    [
        (BASE, 976_909_172_736, 161_715_683_328, 1_342_177_280),
        (replace(GUNDAM, decode_tokens=1), 2_279_392_346_112, 409_734_709_248, 3_439_329_280),
    ],
    ids=["base", "gundam-2x2"],
)
def test_vision_flops_measured_on_a_gpu(
    published: ModelConfig, workload: Workload, sam: int, clip: int, projector: int
) -> None:
    counted = {stage: flops.total() for stage, flops in Meter(published).measure(workload).items()}
    for found in (counted, flops(published, workload)):
        assert (found[Stage.SAM], found[Stage.CLIP]) == (sam, clip)
        assert (found[Stage.PROJECTOR], found[Stage.VISION_FUSION]) == (projector, 0)


def test_a_decoded_token_reads_its_weights_once(published: ModelConfig) -> None:
    counts = parameters(published)
    idle = 11 * (64 - 6) * 3 * 1280 * 896
    active = counts["layers"] - idle + counts["norm"] + counts["lm_head"] + 1280  # and one embedding
    step = decode_step(published, 703)
    assert step.cost.weight_bytes == 2 * active == 1_148_257_280
    # All earlier keys and values and its own, and its own written.
    assert step.cost.kv_bytes == kv_cache_bytes(published.decoder, 704 + 1)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flash_attention_2"])
@pytest.mark.parametrize("batch", [1, 3])
def test_decode_equals_the_loop_over_its_steps(embedded: ModelConfig, attention: str, batch: int) -> None:
    policy = Policy(attention=attention, ignore_torch_unsupported_flops=False)  # type: ignore[arg-type]
    workload = Workload((640,), prompt_tokens=7, decode_tokens=12, batch=batch)
    contexts = (workload.sequence_length + step for step in range(workload.decode_steps))
    looped = sum((decode_step(embedded, each, policy, batch).cost for each in contexts), Cost())
    summed = predict(embedded, workload, policy).stages[Stage.DECODE].cost
    assert summed._replace(parameters=0) == looped._replace(parameters=0)


def test_flash_attention_hides_its_core_from_the_counter(published: ModelConfig) -> None:
    """Otherwise attentions differ in bytes, not in FLOPs."""
    plain, eager = (predict(published, GUNDAM, Policy(attention=name)) for name in ("sdpa", "eager"))
    assert flops(published, GUNDAM, Policy(attention="eager")) == flops(published, GUNDAM)
    assert (
        eager.with_nested(Stage.PREFILL).cost.bytes_moved > plain.with_nested(Stage.PREFILL).cost.bytes_moved
    )
    hidden = flops(published, GUNDAM, Policy(attention="flash_attention_2"))
    shown = Policy(attention="flash_attention_2", ignore_torch_unsupported_flops=False)
    assert flops(published, GUNDAM, shown) == flops(published, GUNDAM)
    core = 4 * 12 * 703 * 703 * 1280
    assert flops(published, GUNDAM)[Stage.PREFILL] - hidden[Stage.PREFILL] == core
    keys = sum(range(704, 704 + 499))
    assert flops(published, GUNDAM)[Stage.DECODE] - hidden[Stage.DECODE] == 4 * 12 * keys * 1280
    notes = predict(published, GUNDAM, Policy(attention="flash_attention_2")).not_counted
    assert any("FlashAttention" in note for note in notes)


def test_causal_halved_keeps_the_lower_triangle(published: ModelConfig) -> None:
    full, halved = (flops(published, GUNDAM, Policy(causal=name)) for name in ("full", "halved"))
    assert full[Stage.PREFILL] - halved[Stage.PREFILL] == 4 * 12 * (703 * 702 // 2) * 1280
    assert full[Stage.DECODE] == halved[Stage.DECODE]
    assert full[Stage.CLIP] == halved[Stage.CLIP]

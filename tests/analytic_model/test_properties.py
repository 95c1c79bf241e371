"""What must hold for any size: more work never costs less, and what is linear is linear."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from analytic_model.ops import Cost
from analytic_model.policy import _CHOICES, Policy
from analytic_model.predict import predict
from analytic_model.workload import Workload
from dsocr_core.models.config import ClipConfig, DecoderConfig, ModelConfig, ProjectorConfig, SamConfig
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.stages import Stage

FEW = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    small = st.integers(1, 5)
    clip_width, hidden, layers = 8 * draw(small), 16 * draw(small), draw(st.integers(2, 6))
    experts = draw(st.integers(1, 8))
    wide = tuple(sorted(draw(st.sets(st.integers(0, layers - 1)))))
    table = draw(st.sampled_from((512, 1024)))
    return ModelConfig(
        sam=SamConfig(8 * draw(small), layers, 2, wide, (6, clip_width), table),
        clip=ClipConfig(clip_width, draw(small), 2, 224, 14),
        projector=ProjectorConfig(2 * clip_width, hidden),
        decoder=DecoderConfig(
            vocab_size=100, hidden_size=hidden, layers=draw(st.integers(1, 6)), heads=2,
            intermediate_size=24, moe_intermediate_size=12, routed_experts=experts,
            experts_per_token=draw(st.integers(1, experts)), shared_experts=2,
            first_dense_layers=draw(st.integers(0, 7)), max_positions=8192, bos_token_id=0, eos_token_id=1,
        ),
    )  # fmt: skip


_FLAGS: dict[str, Any] = {item.name: st.booleans() for item in fields(Policy) if item.name not in _CHOICES}
policies = st.builds(
    Policy, **_FLAGS, **{name: st.sampled_from(choices) for name, choices in _CHOICES.items()}
)
workloads = st.builds(
    Workload.from_image, width=st.integers(1, 4000), height=st.integers(1, 4000),
    preset=st.sampled_from(list(PRESETS)), prompt_tokens=st.integers(1, 2000),
    decode_tokens=st.integers(1, 500), batch=st.integers(1, 4),
)  # fmt: skip


def costs(config: ModelConfig, workload: Workload, policy: Policy) -> dict[Stage, Cost]:
    return {name: stage.cost for name, stage in predict(config, workload, policy).stages.items()}


@FEW
@given(configs(), workloads, policies)
def test_every_figure_is_a_natural_number(config: ModelConfig, workload: Workload, policy: Policy) -> None:
    prediction = predict(config, workload, policy)
    for stage in prediction.stages.values():
        for operator in stage.operators:
            cost = operator.cost
            assert all(type(figure) is int and figure >= 0 for figure in cost), operator
            assert operator.calls >= 1 and cost.activation_bytes >= 0
            assert cost.weight_bytes <= cost.bytes_read and cost.kv_bytes <= cost.bytes_moved
    assert prediction.with_nested(Stage.PREFILL).cost.parameters == prediction.parameters["total"]


@FEW
@given(configs(), workloads, policies, st.integers(2, 5))
def test_batch_is_linear(config: ModelConfig, workload: Workload, policy: Policy, times: int) -> None:
    """In FLOPs, KV cache and activations; the weights are read once for all pages, experts aside."""
    one = costs(config, replace(workload, batch=1), policy)
    many = costs(config, replace(workload, batch=times), policy)
    for stage in one:
        assert many[stage].flops == times * one[stage].flops
        assert many[stage].kv_bytes == times * one[stage].kv_bytes
        assert many[stage].parameters == one[stage].parameters
    for stage in (Stage.SAM, Stage.CLIP, Stage.PROJECTOR):
        assert many[stage].weight_bytes == one[stage].weight_bytes

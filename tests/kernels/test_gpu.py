"""At the published and the embedded sizes on a real GPU: `pytest -m gpu tests/kernels`.

Layers of each kind; the whole step against the plain references, in every order of the MLP; recorded
against launched, with dependent launch against without, early against late, and run against run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from dsocr_core.config import DecoderConfig
from dsocr_core.engine.fast.graph import StepGraph
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.step_launches import MlpOrder, StepLaunches
from dsocr_core.kernels.attention_output import attention_output_reference
from dsocr_core.kernels.down import dense_down_reference, mixture_down_reference
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.lm_head import logits_reference
from dsocr_core.kernels.matvec import gated_reference
from dsocr_core.kernels.qkv_rotary import qkv_rotary_reference
from dsocr_core.kernels.rms_norm import rms_norm_reference
from dsocr_core.kernels.routed_gate_up import routed_gate_up_reference
from dsocr_core.kernels.router import route_reference
from dsocr_core.kernels.shared_gate_up import shared_gate_up_reference
from dsocr_core.kernels.split_attention import split_attention_reference
from dsocr_core.model.decoder import Decoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

PUBLISHED = DecoderConfig(
    vocab_size=129280,
    hidden_size=1280,
    layers=3,
    heads=10,
    intermediate_size=6848,
    moe_intermediate_size=896,
    routed_experts=64,
    experts_per_token=6,
    shared_experts=2,
    first_dense_layers=1,
    max_positions=8192,
    bos_token_id=0,
    eos_token_id=1,
)
EMBEDDED = replace(
    PUBLISHED, vocab_size=1408, hidden_size=320, layers=6, heads=5, intermediate_size=896,
    moe_intermediate_size=224, routed_experts=8, experts_per_token=2,
)  # fmt: skip
PROMPT_TOKENS, NEW_TOKENS = 703, 200


@pytest.fixture(scope="module", params=[PUBLISHED, EMBEDDED], ids=["published", "embedded"])
def weights(request: pytest.FixtureRequest) -> tuple[DecoderConfig, PackedDecoder]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        decoder = Decoder(request.param).requires_grad_(False)
    for parameter in decoder.parameters():
        scale = 1.0 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
        parameter.normal_(0.0, scale)
    return request.param, PackedDecoder.of(decoder.to(torch.bfloat16))


def new_step(
    weights: tuple[DecoderConfig, PackedDecoder],
    dependent: bool = True,
    launches: StepLaunches | None = None,
) -> DecodeStep:
    config, packed = weights
    hopper = torch.cuda.get_device_capability() >= (9, 0)
    launches = (launches or StepLaunches()).with_dependent(dependent and hopper)
    return DecodeStep(packed, config, PROMPT_TOKENS + NEW_TOKENS, torch.bfloat16, -1, launches)


def begin(step: DecodeStep) -> None:
    """As after a prefill of random keys and values."""
    torch.manual_seed(1)
    step.cache.keys.normal_()
    step.cache.values.normal_()
    ids = torch.randint(0, step.config.vocab_size, (PROMPT_TOKENS + 1,))
    step.begin(tuple(ids.tolist()), NEW_TOKENS, 3)


def reference_step(step: DecodeStep) -> Tensor:
    """The same step in plain torch: its logits, (V,)."""
    eps, position = step.config.rms_norm_eps, int(step.state[0])
    x = step.weights.embedding[step.tokens[position]]
    for number, layer in enumerate(step.weights.layers):
        at = layer.attention
        keys, values = step.cache.keys[number, 0].clone(), step.cache.values[number, 0].clone()
        q, keys[:, position], values[:, position] = qkv_rotary_reference(
            x, at.norm, at.q, at.k, at.v, step.rotary.cos, step.rotary.sin, step.state, eps
        )
        mixed = split_attention_reference(q, keys, values, step.state)
        x = attention_output_reference(mixed[None], torch.zeros_like(mixed[None, :, 0]), at.o, x)
        if layer.mixture is None:
            gated = gated_reference(
                layer.shared.gate, layer.shared.up, rms_norm_reference(x, layer.norm, eps)
            )
            x = dense_down_reference(gated, layer.shared.down, x)
            continue
        router, routed = layer.mixture.router, layer.mixture.routed
        logits, shared = shared_gate_up_reference(
            x, layer.norm, router, layer.shared.gate, layer.shared.up, eps
        )
        ids, weights = route_reference(logits, step.config.experts_per_token, 1.0)
        gated = routed_gate_up_reference(x, layer.norm, ids, routed.gate, routed.up, eps)
        x = mixture_down_reference(gated, shared, ids, weights, routed.down, layer.shared.down, x)
    never = torch.full_like(step.tokens[:1], -1).expand(step.config.vocab_size)
    return logits_reference(x, step.weights.norm, step.weights.head, never, step.state, eps)


def variant(order: MlpOrder, early: tuple[str, ...], **more: Any) -> StepLaunches:
    """Fewer rows a program and blocks in turn, with these kernels early."""
    few: dict[str, Any] = {
        "down": Launch(2, 4, programs=264), "routed_gate_up": Launch(4, 4, programs=528),
        "gate_up": Launch(2, 2), "attention_output": Launch(8, 8), "qkv_rotary": Launch(2, 1),
    }  # fmt: skip
    launches = StepLaunches(order=order, **few, **more)
    changes: dict[str, Any] = {name: replace(getattr(launches, name), early=True) for name in early}
    return replace(launches, **changes)


VARIANTS = [
    variant("shared first", ("qkv_rotary", "split_attention", "attention_output", "route", "down")),
    variant("router first", ("qkv_rotary", "split_attention", "attention_output", "route", "down")),
    variant("joined", ("qkv_rotary", "split_attention", "attention_output", "route", "down")),
    variant("joined", ("route", "dense_gate_up", "dense_down", "best_of_rows", "take_best")),
]
HINTED = variant("joined", ("route",), ahead=13, ahead_qkv=10)
"""The cache hint is an instruction of Hopper's."""


def variants() -> list[StepLaunches]:
    hopper = torch.cuda.get_device_capability() >= (9, 0)
    return [StepLaunches(), *VARIANTS, *([HINTED] if hopper else [])]


@torch.inference_mode()
@pytest.mark.parametrize("number", range(2 + len(VARIANTS)))
def test_tokens_are_the_references_best(weights: tuple[DecoderConfig, PackedDecoder], number: int) -> None:
    """Each token is the reference's best one, or as good as it within the rounding of bfloat16."""
    if number >= len(variants()):
        pytest.skip("the cache hint wants Hopper")
    step = new_step(weights, launches=variants()[number])
    begin(step)
    for _ in range(20):
        logits = reference_step(step)
        after = int(step.state[0]) + 1
        step.run()
        chosen = logits[step.tokens[after]]
        assert logits.max() - chosen <= 0.05 * logits.std()


def decoded(step: DecodeStep, graph: bool) -> list[int]:
    run = StepGraph(step).replay if graph else step.run
    begin(step)
    for _ in range(NEW_TOKENS):
        run()
    return step.tokens[PROMPT_TOKENS:].tolist()


@torch.inference_mode()
@pytest.mark.parametrize("number", range(2 + len(VARIANTS)))
def test_every_way_to_launch_gives_the_same_tokens(
    weights: tuple[DecoderConfig, PackedDecoder], number: int
) -> None:
    """What is read before it is complete shows here: without dependent launch nothing overlaps."""
    if number >= len(variants()):
        pytest.skip("the cache hint wants Hopper")
    launches = variants()[number]
    expected = decoded(new_step(weights, False, launches), graph=False)
    assert len(set(expected)) > 20
    for dependent in (False, True):
        step = new_step(weights, dependent, launches)
        for _ in range(3):
            assert decoded(step, graph=True) == expected


@torch.inference_mode()
def test_orders_and_blocks_in_turn_change_no_bit(weights: tuple[DecoderConfig, PackedDecoder]) -> None:
    """At the same warps: a row's sum does not know which program makes it, or when."""
    rows = {name: Launch(4, 4) for name in ("routed_gate_up", "gate_up", "shared_gate_up", "down")}
    plain = StepLaunches(**rows)
    in_turn = {name: Launch(4, 4, programs=264) for name in ("routed_gate_up", "gate_up", "down")}
    expected = decoded(new_step(weights, launches=plain), graph=True)
    for order in get_args(MlpOrder):
        for other in (replace(plain, order=order), replace(plain, order=order, **in_turn)):
            assert decoded(new_step(weights, launches=other), graph=True) == expected

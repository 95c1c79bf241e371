"""A decode step in plain torch, and what rounding explains of the kernels' distance from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.weights import DecoderWeights
from dsocr_core.kernels.decode.attention_output import attention_output_reference
from dsocr_core.kernels.decode.dense_gate_up import dense_gate_up_reference
from dsocr_core.kernels.decode.expert_down import dense_down_reference, mixture_down_reference
from dsocr_core.kernels.decode.expert_gate_up import gate_up_reference
from dsocr_core.kernels.decode.lm_head import logits_reference
from dsocr_core.kernels.decode.qkv_rotary import qkv_rotary_reference
from dsocr_core.kernels.decode.router import router_logits_reference
from dsocr_core.kernels.decode.split_attention import split_attention_reference
from dsocr_core.kernels.matvec import product_reference
from dsocr_core.kernels.state import POSITION

ERROR_ALLOWANCE = 1.25
"""How much larger than the plain step's the kernels' mean error may be: two roundings of one sum differ."""


@dataclass(frozen=True)
class Logits:
    """Of M routers (M, E) and of the vocabulary (V,), -inf where banned."""

    routers: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class StepErrors:
    """One step's distances from the plain step in float32; `plain` is that step in the kernels' dtype."""

    kernels: float
    """Of the logits, by their length: the head times the hidden state that the kernels leave."""
    plain: float
    plain_logit: float
    """The largest of a single one."""
    plain_router: float
    """The largest of a router's logit."""
    token: float
    """How far the chosen token's logit is below the best one's, both in float32."""
    expert: float
    """How far a chosen expert's is below one's that was not chosen, at most."""


def reference_step(step: DecodeStep, weights: DecoderWeights, state: Tensor, choices: list[Tensor]) -> Logits:
    """The step from `state` in the weights' dtype, with `choices` (k,) of experts, one a mixture, given.

    They are given because a choice between equals is a matter of rounding, and goes through to the logits.
    """
    config, dtype = step.config, weights.embedding.dtype
    eps, position = config.rms_norm_eps, int(state[POSITION])
    cos, sin = step.rotary.cos.to(dtype), step.rotary.sin.to(dtype)
    x, routers = weights.embedding[step.tokens[position]], list[Tensor]()
    for number, layer in enumerate(weights.layers):
        gate, up = layer.gate_up.chunk(2)
        keys, values = (c[number, 0].to(dtype, copy=True) for c in (step.cache.keys, step.cache.values))
        q, keys[:, position], values[:, position] = qkv_rotary_reference(
            x, layer.attention_norm, *layer.qkv_parts, cos, sin, state, eps
        )
        mixed = split_attention_reference(q, keys, values, state)
        x = attention_output_reference(mixed[None], torch.zeros_like(mixed[None, :, 0]), layer.o, x)
        if layer.experts is None:
            gated = dense_gate_up_reference(x, layer.norm, gate, up, eps)
            x = dense_down_reference(gated, layer.down, x)
            continue
        ids, routed = choices[len(routers)].long(), layer.experts
        routers.append(router_logits_reference(x, layer.norm, layer.router, eps))
        share = routers[-1].softmax(dim=-1)[ids] * config.routed_scaling_factor
        own, gated = gate_up_reference(x, layer.norm, ids, gate, up, routed.gate, routed.up, eps)
        x = mixture_down_reference(gated, own, ids, share, routed.down, layer.down, x)
    logits = logits_reference(x, weights.norm, weights.head, step._banned_at, state, eps)
    return Logits(torch.stack(routers), logits)


def step_errors(step: DecodeStep, exact: DecoderWeights) -> StepErrors:
    """Runs the next step, a kernel at a time to see the choices; `exact` are its weights in float32."""
    state, choices = step.state.clone(), list[Tensor]()
    for name, launch in step.kernels():
        launch()
        if name == "route":
            choices.append(step._expert_ids.clone())
    true, plain = (reference_step(step, weights, state, choices) for weights in (exact, step.weights))
    chosen = torch.stack(choices).long()  # (M, k)
    others = true.routers.scatter(1, chosen, float("-inf"))
    short = others.amax(dim=1) - true.routers.gather(1, chosen).amin(dim=1)  # (M,)
    allowed, token = true.tokens.isfinite(), step.tokens[int(state[POSITION]) + 1]
    made = product_reference(step.weights.head, step._normed).float()  # (V,)
    exact_logits = true.tokens[allowed]
    off, plain_off = (logits[allowed] - exact_logits for logits in (made, plain.tokens))
    return StepErrors(
        kernels=float(off.norm() / exact_logits.norm()),
        plain=float(plain_off.norm() / exact_logits.norm()),
        plain_logit=float(plain_off.abs().max()),
        plain_router=float((plain.routers - true.routers).abs().max()),
        token=float(true.tokens.max() - true.tokens[token]),
        expert=float(short.max()),
    )


def assert_rounding_explains(errors: Sequence[StepErrors]) -> None:
    """The kernels are as near to float32 as the plain step is, and choose nothing that it could not have.

    Of two logits each may be off by the largest error: so far may the lower one be chosen.
    """
    assert sum(e.kernels for e in errors) <= ERROR_ALLOWANCE * sum(e.plain for e in errors)
    assert max(e.token for e in errors) <= 2 * max(e.plain_logit for e in errors)
    assert max(e.expert for e in errors) <= 2 * max(e.plain_router for e in errors)

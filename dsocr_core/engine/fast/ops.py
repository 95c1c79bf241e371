"""The operations of vision and prefill beside matrix products: kernels on a GPU, their references elsewhere.

The references are for tests: they are right, and slow. Letters: T tokens, C width, h heads, g heads of
keys and of values, D head dim, k experts a token, I inner width, P positions of the cache.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.engine.fast.weights import LayerWeights
from dsocr_core.kernels.launch import is_roomy
from dsocr_core.kernels.prefill import (
    activations,
    add_norm,
    expert_order,
    grouped_experts,
    prefix_attention,
    rotary_cache,
    route_tokens,
)
from dsocr_core.kernels.prefill import window_attention as windows


class Ops:
    """Each method returns its results; with `kernels` it may overwrite what it says."""

    def __init__(self, kernels: bool) -> None:
        self.kernels = kernels

    def add_norm(
        self,
        x: Tensor,
        gain: Tensor,
        eps: float,
        added: Tensor | None = None,
        routed: Tensor | None = None,
        weights: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(sum, its norm) of `x`, `added` and the weighted `routed`, (T, C) each. May overwrite x, added."""
        if not self.kernels:
            return add_norm.add_and_norm_reference(x, gain, eps, added, routed, weights, bias)
        y = torch.empty_like(x, dtype=gain.dtype) if added is None else added
        add_norm.add_and_norm(x, gain, y, eps, added, routed, weights, bias)
        return x, y

    def quick_gelu(self, x: Tensor) -> Tensor:
        """May overwrite x."""
        if not self.kernels:
            return activations.quick_gelu_reference(x)
        activations.quick_gelu(x)
        return x

    def gelu_linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """GELU of a product with a bias: (T, C) by (I, C) -> (T, I).

        In bf16 it is the tanh form at the end of the library's product: what it differs by is less than what
        rounding the product first does, and nothing between goes through memory.
        """
        if not self.kernels or x.dtype != torch.bfloat16:
            return F.gelu(F.linear(x, weight, bias))
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)

    def gated(self, gate_up: Tensor) -> Tensor:
        """(T, 2 I) -> (T, I)"""
        if not self.kernels:
            return activations.gated_rows_reference(gate_up)
        out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
        activations.gated(gate_up, out)
        return out

    def turn_and_cache(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, start: int
    ) -> Tensor:
        """Turned queries (T, h, D) of `qkv` (T, h + 2 g, D); keys and values go to the caches (g, P, D)."""
        if self.kernels:
            q = qkv.new_empty(qkv.shape[0], qkv.shape[1] - 2 * len(keys), qkv.shape[2])
            rotary_cache.turn_and_cache(qkv, cos, sin, q, keys, values, start)
            return q
        q, key_rows, value_rows = rotary_cache.turn_and_cache_reference(qkv, cos, sin, len(keys), start)
        end = start + qkv.shape[0]
        keys[:, start:end], values[:, start:end] = key_rows.transpose(0, 1), value_rows.transpose(0, 1)
        return q

    def window_attention(
        self, qkv: Tensor, bias: Tensor, terms: Tensor, out: Tensor, grid_side: int, window: int
    ) -> None:
        """Write `out` (T, C): `kernels.window_attention`."""
        if self.kernels:
            launch = windows.window_launch(window, is_roomy(qkv.device))
            windows.window_attention(qkv, bias, terms, out, grid_side, window, launch)
        else:
            out.copy_(windows.window_attention_reference(qkv, bias, terms, grid_side, window))

    def prefix_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, starts: Tensor, longest: int, halves: bool = True
    ) -> Tensor:
        """(N, h, D) within views: `kernels.prefix_attention`."""
        if not self.kernels:
            return prefix_attention.prefix_attention_reference(q, keys, values, starts, halves)
        out = q.new_empty(q.shape)
        prefix_attention.prefix_attention(q, keys, values, out, starts, longest, halves)
        return out

    def experts(self, x: Tensor, layer: LayerWeights, each: int, scaling: float) -> tuple[Tensor, Tensor]:
        """The routed experts' outputs (T, k, C) of normed tokens (T, C), and their weights (T, k) float32."""
        router, routed = layer.router, layer.experts
        assert routed is not None
        (tokens, width), (experts, inner, _) = x.shape, routed.gate.shape
        if not self.kernels:
            chosen, weights = route_tokens.route_tokens_reference(x, router, each, scaling)
            slots, starts = expert_order.order_by_expert_reference(chosen, experts)
            gated = grouped_experts.grouped_gate_up_reference(x, slots, starts, routed.gate, routed.up)
            out = grouped_experts.grouped_down_reference(gated, slots, starts, routed.down, each)
            return out, weights
        count = tokens * each
        chosen = x.new_empty(tokens, each, dtype=torch.int32)
        weights = x.new_empty(tokens, each, dtype=torch.float32)
        slots, starts = chosen.new_empty(count), chosen.new_empty(experts + 1)
        gated, out = x.new_empty(count, inner), x.new_empty(tokens, each, width)
        gate_up, down = grouped_experts.grouped_launches(count, experts, x.dtype, x.device)
        route_tokens.route_tokens(x, router, chosen, weights, scaling)
        expert_order.order_by_expert(chosen, slots, starts)
        grouped_experts.grouped_gate_up(x, slots, starts, routed.gate, routed.up, gated, gate_up)
        grouped_experts.grouped_down(gated, slots, starts, routed.down, out, down)
        return out, weights

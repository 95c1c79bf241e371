"""Operations of vision and prefill between matrix products: kernels on a GPU, their references elsewhere.

Views of several sizes are one matrix; `rows_by_size` and `maps` find the rows of each size.

Letters: T tokens, C width, h heads, g heads of keys and of values, D head dim, k experts a token, I inner
width, P positions of the cache, B views of one size, G patches along a view's side, M patches of all views.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.engine.fast.weights import LayerWeights
from dsocr_core.kernels.launch import PLAIN, TRITON, takes_wide_tiles
from dsocr_core.kernels.prefill.activations import gated, quick_gelu
from dsocr_core.kernels.prefill.add_norm import add_and_norm
from dsocr_core.kernels.prefill.expert_order import order_by_expert
from dsocr_core.kernels.prefill.grouped_experts import grouped_down, grouped_gate_up, grouped_launches
from dsocr_core.kernels.prefill.prefix_attention import prefix_attention
from dsocr_core.kernels.prefill.rotary_cache import rotate_and_cache
from dsocr_core.kernels.prefill.route_tokens import route_tokens
from dsocr_core.kernels.prefill.window_attention import window_attention, window_launch

Groups = list[tuple[int, int]]
"""(B, G) of each view size, in the order of their rows."""


def rows_by_size(groups: Groups, class_token: bool = False) -> Iterator[tuple[slice, tuple[int, int]]]:
    """Yield the rows of each view size, with (B, G)."""
    start = 0
    for count, side in groups:
        end = start + count * (side**2 + class_token)
        yield slice(start, end), (count, side)
        start = end


def maps(x: Tensor, groups: Groups) -> Iterator[Tensor]:
    """(M, C) -> (B, C, G, G) of each view size, channels last in memory."""
    for rows, (count, side) in rows_by_size(groups):
        yield x[rows].view(count, side, side, -1).permute(0, 3, 1, 2)


def map_rows(view: Tensor) -> Tensor:
    """(B, C, G, G) -> (B G G, C)"""
    return view.permute(0, 2, 3, 1).reshape(-1, view.shape[1])


class Ops:
    """Operations of the fast passes. A method's docstring says which arguments it overwrites."""

    def __init__(self, kernels: bool) -> None:
        self.kernels = TRITON if kernels else PLAIN

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
        """(sum, its norm) of `x`, `added` and the weighted `routed`, (T, C) each. Overwrites x and added."""
        y = torch.empty_like(x, dtype=gain.dtype) if added is None else added
        self.kernels(add_and_norm)(x, gain, y, eps, added, routed, weights, bias)
        return x, y

    def quick_gelu(self, x: Tensor) -> Tensor:
        """Overwrites x."""
        self.kernels(quick_gelu)(x)
        return x

    def gelu_linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """GELU of a product with a bias: (T, C) by (I, C) -> (T, I); in bf16 the tanh form, which differs by
        less than rounding the product first does.
        """
        if self.kernels.plain or x.dtype != torch.bfloat16:
            return F.gelu(F.linear(x, weight, bias))
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)

    def gated(self, gate_up: Tensor) -> Tensor:
        """(T, 2 I) -> (T, I)"""
        out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
        self.kernels(gated)(gate_up, out)
        return out

    def rotate_and_cache(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, start: int
    ) -> Tensor:
        """Rotated queries (T, h, D) of `qkv` (T, h + 2 g, D); keys and values go to the caches (g, P, D)."""
        q = qkv.new_empty(qkv.shape[0], qkv.shape[1] - 2 * len(keys), qkv.shape[2])
        self.kernels(rotate_and_cache)(qkv, cos, sin, q, keys, values, start)
        return q

    def window_attention(
        self, qkv: Tensor, bias: Tensor, terms: Tensor, out: Tensor, grid_side: int, window: int
    ) -> None:
        """Attention in windows, `kernels.prefill.window_attention`; writes `out` (T, C)."""
        launch = window_launch(window, takes_wide_tiles(qkv.device))
        self.kernels(window_attention)(qkv, bias, terms, out, grid_side, window, launch)

    def prefix_attention(
        self, q: Tensor, keys: Tensor, values: Tensor, starts: Tensor, longest: int, halves: bool = True
    ) -> Tensor:
        """Attention within views, `kernels.prefill.prefix_attention`: (N, h, D)"""
        out = q.new_empty(q.shape)
        self.kernels(prefix_attention)(q, keys, values, out, starts, longest, halves)
        return out

    def experts(self, x: Tensor, layer: LayerWeights, each: int, scaling: float) -> tuple[Tensor, Tensor]:
        """The routed experts' outputs (T, k, C) of normed tokens (T, C), and their weights (T, k) float32."""
        use, routed = self.kernels, layer.experts
        assert routed is not None
        (tokens, width), (experts, inner, _) = x.shape, routed.gate.shape
        count = tokens * each
        chosen = x.new_empty(tokens, each, dtype=torch.int32)
        weights = x.new_empty(tokens, each, dtype=torch.float32)
        slots, starts = chosen.new_empty(count), chosen.new_empty(experts + 1)
        gated, out = x.new_empty(count, inner), x.new_empty(tokens, each, width)
        gate_up, down = grouped_launches(count, experts, x.dtype, x.device)
        use(route_tokens)(x, layer.router, chosen, weights, scaling)
        use(order_by_expert)(chosen, slots, starts)
        use(grouped_gate_up)(x, slots, starts, routed.gate, routed.up, gated, gate_up)
        use(grouped_down)(gated, slots, starts, routed.down, out, down)
        return out, weights

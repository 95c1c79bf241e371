"""One new token through the decoder on a CPU, without the modules' calls: the same operations, the same bits.

Every view and result tensor is made once a page, as half of a small step is views, allocations and calls.
Factors and summands may change sides, which is exact. On some CPUs a product of one row is faster after a
pass over the weight has brought it into the core's cache; the engine measures it.

Letters: C hidden size, h heads, D head dim, L layers, k experts a token, P positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.models.blocks.attention import AttentionCore, DecoderAttention, Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.decoder import Decoder, DecoderLayer
from dsocr_core.models.blocks.layers import RmsNorm, SwiGlu
from dsocr_core.models.blocks.moe import MixtureOfExperts

READ_AHEAD_BYTES = 2**20
"""Largest weight that is read before its product: it fits a core's L2 cache."""

reads_ahead = False
"""True where that is faster on this CPU. Set by `engine.read_ahead`."""

Into = Callable[[Tensor, Tensor], object]
"""Function that computes from its first tensor into its second."""


class TokenStep:
    """Step that appends one token to a cache, for one page on one thread."""

    @staticmethod
    def fits(decoder: Decoder) -> bool:
        """Tell whether the step has the modules' bits: in float32, on a CPU, without hooks on modules."""
        weight = decoder.lm_head.weight
        plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        if not plain or torch.is_autocast_enabled("cpu"):
            return False
        return not any(
            module._forward_hooks or module._forward_pre_hooks or getattr(module, "observers", None)
            for module in decoder.modules()
        )

    def __init__(self, decoder: Decoder, cache: KvCache, rotary: Rotary, core: AttentionCore) -> None:
        self._cache, self._table = cache, decoder.embed_tokens.weight
        width, layers = self._table.shape[1], cast("Iterable[DecoderLayer]", decoder.layers)
        self._attend = _Attention(next(iter(layers)).self_attn, cache, rotary, core)
        self._layers = [_layer(layer, self._attend) for layer in layers]
        self._norm, self._head = _norm(decoder.norm), product_with(decoder.lm_head.weight)
        self._x, self._normed = torch.empty(1, width), torch.empty(1, width)
        self._logits = torch.empty(1, self._table.shape[0])

    def forward(self, token: int) -> Tensor:
        """Logits after `token`, (V,) float32, until the next call. Raises IndexError past the cache."""
        x = self._x
        x.copy_(self._table[token])
        self._attend.begin()
        for layer in self._layers:
            layer(x)
        self._cache.advance(1)
        self._norm(x, self._normed)
        self._head(self._normed, self._logits)
        return self._logits[0]


def _layer(layer: DecoderLayer, attend: _Attention) -> Callable[[Tensor], None]:
    """Run a decoder layer in place. (1, C)"""
    attention, mlp, number = layer.self_attn, layer.mlp, layer.self_attn.layer
    before, after = _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    qkv = tuple(product_with(projection.weight) for projection in projections)
    out = product_with(attention.o_proj.weight)
    feed = _mixture(mlp) if isinstance(mlp, MixtureOfExperts) else _swiglu(cast("SwiGlu", mlp))
    normed, added = (torch.empty(1, layer.input_layernorm.weight.shape[0]) for _ in range(2))

    def forward(x: Tensor) -> None:
        before(x, normed)
        out(attend.forward(number, normed, qkv), added)
        x.add_(added)
        after(x, normed)
        feed(normed, added)
        x.add_(added)

    return forward


class _Attention:
    """Attention of all layers, one at a time: rotary positions, the new cache column, the core."""

    def __init__(self, like: DecoderAttention, cache: KvCache, rotary: Rotary, core: AttentionCore) -> None:
        heads, dim = like.heads, like.head_dim
        half = dim // 2
        self._cache, self._core, self._cos = cache, core, rotary.cos
        # -b * sin is b * -sin: only the sign moves.
        self._minus_sin, self._sin = -rotary.sin[:, :half], rotary.sin[:, half:]
        straight, rotated, crossed = (torch.empty(2, heads, dim) for _ in range(3))  # queries, keys
        value = torch.empty(heads, dim)
        self._straight, self._rotated, self._crossed = straight, rotated, crossed
        self._first, self._second = straight[..., :half], straight[..., half:]
        self._to_first, self._to_second = crossed[..., :half], crossed[..., half:]
        self._rows = tuple(part.view(1, -1) for part in (straight[0], straight[1], value))
        self._query, self._key = rotated[0].view(1, heads, 1, dim), rotated[1].view(1, heads, 1, dim)
        self._value = value.view(1, heads, 1, dim)

    def begin(self) -> None:
        """Make the views for a new token's position, of all layers at once."""
        cache, at = self._cache, self._cache.length
        slot, end = cache.place()
        if at >= self._cos.shape[0]:
            raise IndexError(f"rotary table of {self._cos.shape[0]} positions lacks position {at + 1}")
        self._turn = self._cos[at], self._minus_sin[at], self._sin[at]  # (D,), (D/2,) twice
        self._keys, self._values = (  # L times (1, h, P, D)
            held.narrow(3, 0, end).unbind(0) for held in (cache.keys, cache.values)
        )
        self._new_keys, self._new_values = (  # L times (1, h, 1, D)
            held.narrow(3, slot, 1).unbind(0) for held in (cache.keys, cache.values)
        )

    def forward(self, layer: int, x: Tensor, qkv: tuple[Into, ...]) -> Tensor:
        """Attention before its output projection. (1, C) -> (1, h*D)"""
        for product, row in zip(qkv, self._rows, strict=True):
            product(x, row)
        cos, minus_sin, sin = self._turn
        rotated = self._rotated
        torch.mul(self._straight, cos, out=rotated)
        torch.mul(self._second, minus_sin, out=self._to_first)
        torch.mul(self._first, sin, out=self._to_second)
        rotated.add_(self._crossed)
        self._new_keys[layer].copy_(self._key)
        self._new_values[layer].copy_(self._value)
        y = self._core(self._query, self._keys[layer], self._values[layer])  # (1, h, 1, D)
        return y.transpose(1, 2).reshape(1, -1)


def product_with(weight: Tensor, ahead: bool | None = None) -> Into:
    """Function (1, in) -> (1, out) for a weight (out, in), read ahead if `ahead` or found faster."""
    columns, values = weight.t(), weight.detach().view(-1)
    mm, dot = torch.mm, torch.dot
    if weight.nbytes > READ_AHEAD_BYTES or not (reads_ahead if ahead is None else ahead):
        return lambda x, out: mm(x, columns, out=out)

    def product(x: Tensor, out: Tensor) -> None:
        dot(values, values)  # for what it reads
        mm(x, columns, out=out)

    return product


def _norm(norm: RmsNorm) -> Into:
    """`RmsNorm`. (1, C)"""
    weight, eps = norm.weight, norm.eps
    squares, scale = torch.empty(1, weight.shape[0]), torch.empty(1, 1)

    def normed(x: Tensor, out: Tensor) -> None:
        torch.mul(x, x, out=squares)
        torch.mean(squares, -1, True, out=scale)
        scale.add_(eps).rsqrt_()
        torch.mul(x, scale, out=out)
        out.mul_(weight)

    return normed


def _gated(gate: Tensor, up: Tensor, down: Tensor) -> Into:
    """A gated feed-forward of three weights. (1, C)"""
    to_gate, to_up, to_out = product_with(gate), product_with(up), product_with(down)
    inner, other = torch.empty(1, gate.shape[0]), torch.empty(1, gate.shape[0])

    def forward(x: Tensor, out: Tensor) -> None:
        to_gate(x, inner)
        to_up(x, other)
        F.silu(inner, inplace=True)
        inner.mul_(other)
        to_out(inner, out)

    return forward


def _swiglu(mlp: SwiGlu) -> Into:
    return _gated(mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)


def _mixture(mlp: MixtureOfExperts) -> Into:
    """The chosen experts' sum and the shared experts'. (1, C)"""
    held, count = mlp.experts, mlp.experts_per_token
    experts = [_gated(*weights) for weights in zip(held.gate_proj, held.up_proj, held.down_proj, strict=True)]
    shared, gate = _swiglu(mlp.shared_experts), product_with(mlp.gate.weight)
    scaling = mlp.scaling
    each = torch.empty(1, count, held.gate_proj.shape[2])  # (1, k, C)
    rows, scores = [row[None] for row in each[0].unbind(0)], torch.empty(1, len(experts))
    routed = torch.empty(1, each.shape[2])

    def forward(x: Tensor, out: Tensor) -> None:
        gate(x, scores)
        weights, chosen = torch.topk(scores.softmax(-1), count, -1, True, False)  # (1, k) each
        for number, row in zip(chosen[0].tolist(), rows, strict=True):
            experts[number](x, row)
        each.mul_(weights.mul_(scaling).unsqueeze(-1))
        torch.sum(each, 1, out=routed)
        shared(x, out)
        out.add_(routed)

    return forward

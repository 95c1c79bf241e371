"""A Qwen2 as the encoder behind SAM, over all views of an image at once.

Letters: B views of one size, F features along a view's side, T = F F of them and as many queries, M features
of all views together, h heads, k key-value heads, D head dim, C width, I inner width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.view_groups import Groups, rows_of
from dsocr_core.models.blocks.qwen2_encoder import Qwen2Encoder, Qwen2Layer


@dataclass(frozen=True)
class _Layer:
    """`qkv` ((h + 2 k) D, C) with its bias, `gate_up` (2 I, C): copies, 0.47 GB of the published model."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    output: Tensor
    second_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: Qwen2Layer) -> _Layer:
        at, mlp = layer.self_attn, layer.mlp
        projections = (at.q_proj, at.k_proj, at.v_proj)
        return cls(
            layer.input_layernorm.weight,
            torch.cat([each.weight for each in projections]),
            torch.cat([each.bias for each in projections]),
            at.o_proj.weight,
            layer.post_attention_layernorm.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            mlp.down_proj.weight,
        )


class EncoderTower:
    """SAM features (M, C) of views of (B, F) -> the queries' answers, (M, C)."""

    joins_sam = False

    def __init__(self, encoder: Qwen2Encoder, ops: Ops) -> None:
        self._encoder, self._config, self._ops = encoder, encoder.config, ops
        self._layers = [_Layer.of(cast(Qwen2Layer, layer)) for layer in encoder.layers]
        self._turns: dict[tuple[tuple[int, int], ...], tuple[Tensor, Tensor]] = {}

    def __call__(self, features: Tensor, groups: Groups) -> Tensor:
        config, ops, eps = self._config, self._ops, self._config.rms_norm_eps
        # Of each view its features, then its queries.
        x = torch.cat([self._tokens(features[rows], *group) for rows, group in rows_of(groups)])  # (2 M, C)
        cos, sin = self._turn(groups)
        _, y = ops.add_norm(x, self._layers[0].norm, eps)
        following = [layer.norm for layer in self._layers[1:]] + [self._encoder.norm.weight]
        keys, values = (y.new_empty(config.kv_heads, len(x), config.head_dim) for _ in "kv")
        for layer, norm in zip(self._layers, following, strict=True):
            qkv = F.linear(y, layer.qkv, layer.qkv_bias).view(len(x), -1, config.head_dim)
            q = ops.turn_and_cache(qkv, cos, sin, keys, values, 0)  # (2 M, h, D)
            mixed = torch.cat(
                [
                    _attend(q[rows], keys[:, rows], values[:, rows], *group)
                    for rows, group in rows_of(groups, per_patch=2)
                ]
            )
            x, y = ops.add_norm(x, layer.second_norm, eps, F.linear(mixed, layer.output))
            x, y = ops.add_norm(x, norm, eps, F.linear(ops.gated(F.linear(y, layer.gate_up)), layer.down))
        answers = [
            y[rows].view(count, 2, side**2, -1)[:, 1].flatten(0, 1)
            for rows, (count, side) in rows_of(groups, per_patch=2)
        ]
        return torch.cat(answers)

    def _tokens(self, features: Tensor, count: int, side: int) -> Tensor:
        """(B T, C) -> (B 2 T, C)"""
        queries = self._encoder.queries_for(side**2).expand(count, -1, -1)
        return torch.cat([features.view(count, side**2, -1), queries], dim=1).flatten(0, 1)

    def _turn(self, groups: Groups) -> tuple[Tensor, Tensor]:
        """Cosines and sines of every row by its place in its view, (2 M, D)."""
        key = tuple(groups)
        if key not in self._turns:
            turns = [(count, self._encoder.turn(2 * side**2)) for count, side in groups]
            cos, sin = (torch.cat([turn[part].repeat(count, 1) for count, turn in turns]) for part in (0, 1))
            dtype = self._encoder.norm.weight.dtype
            self._turns[key] = cos.to(dtype), sin.to(dtype)
        return self._turns[key]


def _attend(q: Tensor, keys: Tensor, values: Tensor, count: int, side: int) -> Tensor:
    """Attention within each view: (B 2 T, h, D) and twice (k, B 2 T, D) -> (B 2 T, h D).

    Features see features, a query the queries up to itself as well. So causal attention is right for the
    queries, before which all features stand, and what it makes of the features is overwritten.
    """
    width, features = q.shape[1] * q.shape[2], side**2
    q = q.view(count, 2 * features, *q.shape[1:]).transpose(1, 2)  # (B, h, 2 T, D)
    k, v = (
        part.view(len(part), count, 2 * features, -1).transpose(0, 1) for part in (keys, values)
    )  # (B, k, 2 T, D)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    own = (part[:, :, :features] for part in (q, k, v))
    mixed[:, :, :features] = F.scaled_dot_product_attention(*own, enable_gqa=True)
    return mixed.transpose(1, 2).reshape(-1, width)

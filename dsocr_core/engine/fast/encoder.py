"""A Qwen2 as the encoder behind SAM, over all views of an image at once.

Letters: V views, B of one size, F features along a view's side, T = F F of them and as many queries, M
features of all views together, h heads, k key-value heads, D head dim, C width, I inner width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.engine.fast.ops import Groups, Ops, rows_of
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


@dataclass(frozen=True)
class _Places:
    """Turns of every row (2 M, D); where views start (V + 1,), the longest; the rows of answers (M,)."""

    cos: Tensor
    sin: Tensor
    starts: Tensor
    longest: int
    answers: Tensor


class EncoderTower:
    """SAM features (M, C) of views of (B, F) -> the queries' answers, (M, C)."""

    joins_sam = False

    def __init__(self, encoder: Qwen2Encoder, ops: Ops) -> None:
        self._encoder, self._config, self._ops = encoder, encoder.config, ops
        self._layers = [_Layer.of(cast(Qwen2Layer, layer)) for layer in encoder.layers]
        self._places: dict[tuple[tuple[int, int], ...], _Places] = {}

    def __call__(self, features: Tensor, groups: Groups) -> Tensor:
        config, ops, eps = self._config, self._ops, self._config.rms_norm_eps
        # Of each view its features, then its queries.
        x = torch.cat([self._tokens(features[rows], *group) for rows, group in rows_of(groups)])  # (2 M, C)
        at = self._places_of(groups)
        _, y = ops.add_norm(x, self._layers[0].norm, eps)
        following = [layer.norm for layer in self._layers[1:]] + [self._encoder.norm.weight]
        keys, values = (y.new_empty(config.kv_heads, len(x), config.head_dim) for _ in "kv")
        for layer, norm in zip(self._layers, following, strict=True):
            qkv = F.linear(y, layer.qkv, layer.qkv_bias).view(len(x), -1, config.head_dim)
            q = ops.turn_and_cache(qkv, at.cos, at.sin, keys, values, 0)  # (2 M, h, D)
            mixed = ops.prefix_attention(q, keys, values, at.starts, at.longest).flatten(1)
            if norm is following[-1]:
                mixed, x = mixed[at.answers], x[at.answers]  # (M, C): no other row is read any more
            x, y = ops.add_norm(x, layer.second_norm, eps, F.linear(mixed, layer.output))
            x, y = ops.add_norm(x, norm, eps, F.linear(ops.gated(F.linear(y, layer.gate_up)), layer.down))
        return y

    def _tokens(self, features: Tensor, count: int, side: int) -> Tensor:
        """(B T, C) -> (B 2 T, C)"""
        queries = self._encoder.queries_for(side**2).expand(count, -1, -1)
        return torch.cat([features.view(count, side**2, -1), queries], dim=1).flatten(0, 1)

    def _places_of(self, groups: Groups) -> _Places:
        key = tuple(groups)
        if key not in self._places:
            lengths = torch.tensor([2 * side**2 for count, side in groups for _ in range(count)])  # (V,)
            starts = F.pad(lengths.cumsum(0), (1, 0))
            own = torch.cat([torch.arange(length) for length in lengths.tolist()])  # (2 M,)
            answers = (own >= lengths.repeat_interleave(lengths) // 2).nonzero()[:, 0]
            longest, weight = int(lengths.max()), self._encoder.norm.weight
            own = own.to(weight.device)
            cos, sin = (part[own].to(weight.dtype) for part in self._encoder.turn(longest))
            self._places[key] = _Places(
                cos, sin, starts.to(weight.device, torch.int32), longest, answers.to(weight.device)
            )
        return self._places[key]

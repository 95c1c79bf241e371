"""The decoder's weights as the kernels read them: views of the model's own storage, and the head in 8 bits.

Letters: C hidden size, h heads, D head dim, E experts, I width of an expert, S width of the shared
experts, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import cast

from torch import Tensor

from dsocr_core.kernels.decode.head_bounds import RoundedHead, round_head
from dsocr_core.models.blocks.decoder import Decoder, DecoderLayer
from dsocr_core.models.blocks.layers import SwiGlu
from dsocr_core.models.blocks.moe import MixtureOfExperts


@dataclass(frozen=True)
class AttentionWeights:
    """`norm` (C,), `q`, `k`, `v` (h D, C), `o` (C, h D)."""

    norm: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor


@dataclass(frozen=True)
class GatedWeights:
    """`gate` and `up` (S, C), `down` (C, S); of the routed experts (E, I, C) and (E, C, I)."""

    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class MixtureWeights:
    """`router` (E, C)."""

    router: Tensor
    routed: GatedWeights


@dataclass(frozen=True)
class LayerWeights:
    """`shared` is what every token runs: the shared experts, or all of a dense layer without `mixture`."""

    attention: AttentionWeights
    norm: Tensor
    shared: GatedWeights
    mixture: MixtureWeights | None


@dataclass(frozen=True)
class PackedDecoder:
    """`embedding` and `head` (V, C), `norm` (C,)."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor

    @classmethod
    def of(cls, decoder: Decoder) -> PackedDecoder:
        return cls(
            decoder.embed_tokens.weight.detach(),
            tuple(_layer(cast(DecoderLayer, layer)) for layer in decoder.layers),
            decoder.norm.weight.detach(),
            decoder.lm_head.weight.detach(),
        )

    @cached_property
    def rounded_head(self) -> RoundedHead:
        """The only copy: V C bytes more."""
        return round_head(self.head)

    def bytes_a_token(self, experts_per_token: int) -> int:
        """Weights that one decoded token reads, of the head those in 8 bits. The cache comes on top."""
        rounded = self.rounded_head
        total = _bytes(self.norm) + _bytes(self.embedding[0])
        total += _bytes(rounded.rows) + _bytes(rounded.scale) + _bytes(rounded.reach)
        for layer in self.layers:
            total += _bytes(layer.norm) + _all_bytes(layer.attention) + _all_bytes(layer.shared)
            if layer.mixture is not None:
                routed = _all_bytes(layer.mixture.routed) // layer.mixture.router.shape[0]
                total += _bytes(layer.mixture.router) + routed * experts_per_token
        return total


def _layer(layer: DecoderLayer) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    mixture = None
    if isinstance(mlp, MixtureOfExperts):
        experts = mlp.experts
        routed = GatedWeights(
            experts.gate_proj.detach(), experts.up_proj.detach(), experts.down_proj.detach()
        )
        mixture = MixtureWeights(mlp.gate.weight.detach(), routed)
        shared = mlp.shared_experts
    else:
        shared = cast(SwiGlu, mlp)
    return LayerWeights(
        AttentionWeights(
            layer.input_layernorm.weight.detach(),
            *(getattr(attention, f"{name}_proj").weight.detach() for name in "qkvo"),
        ),
        layer.post_attention_layernorm.weight.detach(),
        GatedWeights(*(getattr(shared, f"{name}_proj").weight.detach() for name in ("gate", "up", "down"))),
        mixture,
    )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _all_bytes(weights: AttentionWeights | GatedWeights) -> int:
    return sum(_bytes(getattr(weights, field.name)) for field in fields(weights))

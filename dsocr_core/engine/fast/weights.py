"""The decoder's weights as the fast engine reads them: products of the same input are one matrix.

The modules' own parameters become views of the packed matrices. The head is also there in 8 bits.

Letters: C hidden size, h heads, D head dim, E experts, I width of an expert, S width of the shared experts or
of a dense layer, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dsocr_core.kernels.decode.head_bounds import RoundedHead, round_head
from dsocr_core.models.blocks.decoder import Decoder, DecoderLayer
from dsocr_core.models.blocks.layers import SwiGlu
from dsocr_core.models.blocks.moe import MixtureOfExperts


@dataclass(frozen=True)
class Experts:
    """Weights of a layer's experts: `gate` and `up` (E, I, C), `down` (E, C, I)."""

    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class LayerWeights:
    """A layer: `qkv` (3 h D, C), `o` (C, h D), `wide` (E + 2 S, C) of router, gate and up, `down` (C, S).

    Gate, up and down are those of the shared experts, or of a dense layer: no `experts`, no router.
    """

    attention_norm: Tensor
    qkv: Tensor
    o: Tensor
    norm: Tensor
    wide: Tensor
    down: Tensor
    experts: Experts | None

    @property
    def qkv_parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of `qkv` for queries, keys and values, (h D, C) each."""
        q, k, v = self.qkv.chunk(3)
        return q, k, v

    @property
    def router(self) -> Tensor:
        """Weights of the router (E, C); no rows in a dense layer."""
        return self.wide[: len(self.wide) - 2 * self.down.shape[1]]

    @property
    def gate_up(self) -> Tensor:
        """Weights of gate and up, (2 S, C)."""
        return self.wide[-2 * self.down.shape[1] :]

    @property
    def routed_bytes(self) -> int:
        """Bytes of all routed experts."""
        experts = self.experts
        return 0 if experts is None else experts.gate.nbytes + experts.up.nbytes + experts.down.nbytes

    @property
    def shared_bytes(self) -> int:
        """Bytes of this layer that every step reads, whatever the router chooses."""
        parts = (self.attention_norm, self.qkv, self.o, self.norm, self.wide, self.down)
        return sum(part.nbytes for part in parts)


@dataclass(frozen=True)
class DecoderWeights:
    """Weights of a decoder: `embedding` and `head` (V, C), `norm` (C,), layers."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor

    @cached_property
    def rounded_head(self) -> RoundedHead:
        """The head in 8 bits. It takes V C bytes more."""
        return round_head(self.head)

    def bytes_a_step(self) -> int:
        """Bytes of weights that a step of many sequences reads, all experts once; without the caches."""
        layers = sum(layer.shared_bytes + layer.routed_bytes for layer in self.layers)
        return layers + self.norm.nbytes + self.head.nbytes


_packed: WeakKeyDictionary[Decoder, DecoderWeights] = WeakKeyDictionary()


def pack(decoder: Decoder) -> DecoderWeights:
    """Pack a decoder's weights once. Its parameters become views of the packed matrices."""
    found = _packed.get(decoder)
    if found is None or found.embedding.data_ptr() != decoder.embed_tokens.weight.data_ptr():
        with torch.inference_mode(False):  # an inference tensor cannot hold a parameter's memory
            _packed[decoder] = DecoderWeights(
                decoder.embed_tokens.weight.detach(),
                tuple(_layer(cast(DecoderLayer, layer)) for layer in decoder.layers),
                decoder.norm.weight.detach(),
                decoder.lm_head.weight.detach(),
            )
    return _packed[decoder]


def _layer(layer: DecoderLayer) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    routed, router, shared = None, list[nn.Linear](), mlp
    if isinstance(mlp, MixtureOfExperts):
        own = mlp.experts
        routed = Experts(own.gate_proj.detach(), own.up_proj.detach(), own.down_proj.detach())
        router, shared = [mlp.gate], mlp.shared_experts
    gated = cast(SwiGlu, shared)
    return LayerWeights(
        layer.input_layernorm.weight.detach(),
        _joined([attention.q_proj, attention.k_proj, attention.v_proj]),
        attention.o_proj.weight.detach(),
        layer.post_attention_layernorm.weight.detach(),
        _joined([*router, gated.gate_proj, gated.up_proj]),
        gated.down_proj.weight.detach(),
        routed,
    )


def _joined(linears: Sequence[nn.Linear]) -> Tensor:
    """Join the rows of several weights in one matrix. The weights become views of it."""
    whole = torch.cat([linear.weight.detach() for linear in linears])
    parts = torch.split(whole, [len(linear.weight) for linear in linears])
    for linear, part in zip(linears, parts, strict=True):
        linear.weight = nn.Parameter(part, requires_grad=False)
    return whole

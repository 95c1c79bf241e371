"""The decoder's weights as the batch step reads them: products of the same input are one matrix.

Letters: C hidden size, h heads, D head dim, E experts, S width of the shared experts or the dense layer.

The concatenated matrices are copies, 3 h D + E + 2 S rows a layer: 0.26 GB of the published model. The routed
experts, which are most of the weights, are the model's own storage.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.engine.fast.packed import GatedWeights, LayerWeights, PackedDecoder


@dataclass(frozen=True)
class BatchLayer:
    """`qkv` (3 h D, C), `o` (C, h D); `wide` (E + 2 S, C) holds router, gate and up, `down` (C, S).

    `routed` is None in a dense layer, which has no router either.
    """

    attention_norm: Tensor
    qkv: Tensor
    o: Tensor
    norm: Tensor
    wide: Tensor
    down: Tensor
    routed: GatedWeights | None

    @classmethod
    def of(cls, layer: LayerWeights) -> BatchLayer:
        attention, shared, mixture = layer.attention, layer.shared, layer.mixture
        router = [] if mixture is None else [mixture.router]
        return cls(
            attention.norm,
            torch.cat([attention.q, attention.k, attention.v]),
            attention.o,
            layer.norm,
            torch.cat([*router, shared.gate, shared.up]),
            shared.down,
            None if mixture is None else mixture.routed,
        )

    @property
    def shared_bytes(self) -> int:
        """Count what a step reads of this layer whatever the router chooses."""
        held = (self.attention_norm, self.qkv, self.o, self.norm, self.wide, self.down)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    @property
    def routed_bytes(self) -> int:
        """Count the bytes of all routed experts."""
        held = () if self.routed is None else (self.routed.gate, self.routed.up, self.routed.down)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)


@dataclass(frozen=True)
class BatchWeights:
    """`embedding` and `head` (V, C), `norm` (C,)."""

    embedding: Tensor
    layers: tuple[BatchLayer, ...]
    norm: Tensor
    head: Tensor

    @classmethod
    def of(cls, packed: PackedDecoder) -> BatchWeights:
        return cls(packed.embedding, tuple(map(BatchLayer.of, packed.layers)), packed.norm, packed.head)

    def bytes_a_step(self) -> int:
        """Weights that a step of many sequences reads: all experts once. The caches come on top."""
        layers = sum(layer.shared_bytes + layer.routed_bytes for layer in self.layers)
        return layers + (self.norm.numel() + self.head.numel()) * self.head.element_size()

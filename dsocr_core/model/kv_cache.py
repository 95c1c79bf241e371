"""Static KV cache: allocated once for a page, written in place, read up to its length.

Letters: L layers, B batch, h heads, P positions, D head dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsocr_core.config import DecoderConfig


class KvCache:
    """Keys and values of every layer, (L, B, h, P, D) each."""

    def __init__(
        self, config: DecoderConfig, positions: int, dtype: torch.dtype, device: torch.device, batch: int = 1
    ) -> None:
        shape = (config.layers, batch, config.heads, positions, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    @classmethod
    def over(cls, keys: Tensor, values: Tensor) -> KvCache:
        """An empty cache in storage of the caller's, (L, B, h, P, D) each."""
        cache = cls.__new__(cls)
        cache.keys, cache.values, cache.length = keys, values, 0
        return cache

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (B, h, N, D) at the current length; return all keys and values up to their end."""
        end = self.length + keys.shape[2]
        if end > self.capacity:
            raise IndexError(f"KV cache of {self.capacity} positions cannot take position {end}")
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # (B, h, P, D)

    def advance(self, count: int) -> None:
        """All layers have written `count` positions."""
        self.length += count

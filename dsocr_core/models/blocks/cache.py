"""Static KV cache: allocated once for a page, written in place, read up to its length.

With a window the new tokens are in a ring behind the prompt, read in the order of slots, as published.

Letters: L layers, B batch, h heads, P positions, D head dim.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from dsocr_core.models.config import DecoderConfig


class KvCache:
    """Keys and values of every layer, (L, B, h, P, D) each."""

    window: int | None = None
    """Slots of the ring; None without a window."""
    prompt = 0
    """Positions before the ring: those of the first write."""

    def __init__(
        self, config: DecoderConfig, positions: int, dtype: torch.dtype, device: torch.device, batch: int = 1
    ) -> None:
        """Cache for `positions`; with a window at most those of the prompt and the window."""
        self.window = config.window
        shape = (config.layers, batch, config.heads, positions, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    @classmethod
    def over(cls, keys: Tensor, values: Tensor) -> Self:
        """Empty cache in the caller's tensors, (L, B, h, P, D) each."""
        cache = cls.__new__(cls)
        cache.keys, cache.values, cache.length = keys, values, 0
        return cache

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (B, h, N, D) at the current length. Returns all visible keys and values."""
        start, end = self.place(keys.shape[2])
        last = start + keys.shape[2]
        self.keys[layer, :, :, start:last] = keys
        self.values[layer, :, :, start:last] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # (B, h, P, D)

    def place(self, count: int = 1) -> tuple[int, int]:
        """Slot of the next position, and the number of visible slots with it. Raises IndexError."""
        start, end = self.length, self.length + count
        if self.window is not None and self.length:
            if count > 1:
                raise IndexError("a ring takes the tokens after its prompt one by one")
            start = self.prompt + (self.length - self.prompt) % self.window
            end = min(end, self.prompt + self.window)
        if max(start + count, end) > self.capacity:
            raise IndexError(
                f"KV cache of {self.capacity} positions cannot take position {self.length + count}"
            )
        return start, end

    def advance(self, count: int) -> None:
        """Move on by `count` positions, after all layers have written them."""
        if not self.length:
            self.prompt = count
        self.length += count

    @staticmethod
    def positions(config: DecoderConfig, prompt: int, new: int) -> int:
        """Slots that a prompt and that many new tokens need."""
        return prompt + (new if config.window is None else min(new, config.window))

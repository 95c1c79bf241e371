"""Static KV cache: allocated once for a page, written in place, read up to its length.

With a window the new tokens stand in a ring behind the prompt, in the order of their slots, as published.

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
    """Slots of the ring; None: no token is forgotten."""
    prompt = 0
    """Positions before the ring: what is written at first, before any token."""

    def __init__(
        self, config: DecoderConfig, positions: int, dtype: torch.dtype, device: torch.device, batch: int = 1
    ) -> None:
        """For `positions`, which with a window are the prompt's and the window's at most."""
        self.window = config.window
        shape = (config.layers, batch, config.heads, positions, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    @classmethod
    def over(cls, keys: Tensor, values: Tensor) -> Self:
        """An empty cache in storage of the caller's, (L, B, h, P, D) each."""
        cache = cls.__new__(cls)
        cache.keys, cache.values, cache.length = keys, values, 0
        return cache

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (B, h, N, D) at the current length; return all keys and values that are seen."""
        start, end = self.place(keys.shape[2])
        last = start + keys.shape[2]
        self.keys[layer, :, :, start:last] = keys
        self.values[layer, :, :, start:last] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]  # (B, h, P, D)

    def place(self, count: int = 1) -> tuple[int, int]:
        """The slot of the next position, and how many slots are seen with it. Raises IndexError."""
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
        """All layers have written `count` positions."""
        if not self.length:
            self.prompt = count
        self.length += count

    @staticmethod
    def positions(config: DecoderConfig, prompt: int, new: int) -> int:
        """Slots that a prompt and so many new tokens take."""
        return prompt + (new if config.window is None else min(new, config.window))

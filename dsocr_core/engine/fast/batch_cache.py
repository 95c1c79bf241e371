"""Caches of a batch's slots, in the activations' type or in 8 bits with scales.

Where slots hold 8 bits, a prefill writes to one full cache that all share, and when the prompt is whole it is
rounded into its slot: the scales are the prompt's own, so a page's tokens do not depend on its neighbours.

Letters: L layers, S slots, h heads, P positions, N tokens of the prompt, D head dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsocr_core.base.specs.kinds import Precision
from dsocr_core.kernels.batch.scales import FP8, Scales, as_cached, scales_of
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig


def position_bytes(config: DecoderConfig, dtype: torch.dtype, precision: Precision) -> int:
    """Count the bytes of a position's keys and values in all layers."""
    size = 1 if precision == "fp8-kv" else dtype.itemsize
    return 2 * config.layers * config.heads * config.head_dim * size


Halves = tuple[Tensor, Tensor]
"""Keys and values."""


class SlotCaches:
    """`keys` and `values` (L, S, h, P, D), and of those in 8 bits the `scales` (L, S, h)."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, precision: Precision
    ) -> None:
        eight = precision == "fp8-kv"
        self.keys, self.values = (
            torch.empty(shape, dtype=FP8 if eight else dtype, device=device) for _ in "kv"
        )
        self.scales: Scales = (None, None)
        self._prompt: Halves | None = None
        if eight:
            self.scales = torch.ones(shape[:3], device=device), torch.ones(shape[:3], device=device)
            layers, _, *rest = shape
            one = torch.empty(2, layers, 1, *rest, dtype=dtype, device=device)
            self._prompt = one[0], one[1]

    def of_layer(self, number: int) -> Scales:
        """The scales of a layer, (S, h) each."""
        keys, values = (None if scale is None else scale[number] for scale in self.scales)
        return keys, values

    def of_slot(self, slot: int) -> KvCache:
        """Give that slot's cache, empty, for a prefill."""
        if self._prompt is None:
            return KvCache.over(self.keys[:, slot : slot + 1], self.values[:, slot : slot + 1])
        cache = _Rounded.over(*self._prompt)
        cache.into = self, slot
        return cache

    def round(self, slot: int, prompt: Halves, count: int) -> None:
        """Bring the first positions of a full cache, (L, 1, h, P, D) each, into a slot."""
        for half, mine, scales in zip(prompt, (self.keys, self.values), self.scales, strict=True):
            written, scale = half[:, 0, :, :count], None  # (L, h, N, D)
            if scales is not None:
                scales[:, slot] = scales_of(written)
                scale = scales[:, slot, :, None, None]
            mine[:, slot, :, :count] = as_cached(written, scale)


class _Rounded(KvCache):
    """The cache of a prefill, which its slot takes as it is whole."""

    into: tuple[SlotCaches, int]

    def advance(self, count: int) -> None:
        super().advance(count)
        caches, slot = self.into
        caches.round(slot, (self.keys, self.values), self.length)

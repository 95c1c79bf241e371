"""Buffers of a batch's step: the caches of its slots, in the activations' type or in 8 bits, and its rows.

Where slots hold 8 bits, a prefill writes to one full cache that all share, and when the prompt is whole it is
rounded into its slot: the scales are the prompt's own, so a page's tokens do not depend on its neighbours.

Letters: L layers, S slots, h heads, P positions, N tokens of the prompt, D head dim.
"""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from dsocr_core.base.specs import Precision
from dsocr_core.kernels.batch.head import head_parts
from dsocr_core.kernels.batch.scales import FP8, Scales, as_cached, scales_of
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig

PASS_ROWS = (4, 8)
"""Rows that a slot may have in a pass over drafts."""
MOST_ROWS = max(PASS_ROWS)
POSITIONS_STEP = 64
"""Slots hold a multiple of this, so that every slot's rows begin at an aligned address."""


def positions_of(prompt_tokens: int, limit: int) -> int:
    """P: what a slot must hold for such a page."""
    return -(-(prompt_tokens + limit) // POSITIONS_STEP) * POSITIONS_STEP


def ring_slack(config: DecoderConfig, drafted: bool) -> int:
    """Slots of a ring beyond its window, so that refused rows of a draft never overwrite visible keys."""
    return MOST_ROWS - 1 if drafted and config.window is not None else 0


def position_bytes(config: DecoderConfig, dtype: torch.dtype, precision: Precision) -> int:
    """Count the bytes of a position's keys and values in all layers."""
    size = 1 if precision == "fp8-kv" else dtype.itemsize
    return 2 * config.layers * config.heads * config.head_dim * size


def slot_bytes(
    config: DecoderConfig,
    positions: int,
    held: int,
    dtype: torch.dtype,
    drafted: bool = False,
    precision: Precision = "off",
) -> int:
    """Device memory of one slot: its cache, and per position a token and match lengths; its logits."""
    cache = position_bytes(config, dtype, precision)
    rows = MOST_ROWS if drafted else 1
    return held * cache + positions * (4 + 8 * rows) + rows * config.vocab_size * dtype.itemsize


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
        self._prompt: Tensor | None = None
        if eight:
            self.scales = torch.ones(shape[:3], device=device), torch.ones(shape[:3], device=device)
            layers, _, *rest = shape
            self._prompt = torch.empty(2, layers, 1, *rest, dtype=dtype, device=device)

    def of_layer(self, number: int) -> Scales:
        """The scales of a layer, (S, h) each."""
        keys, values = (None if scale is None else scale[number] for scale in self.scales)
        return keys, values

    def of_slot(self, slot: int) -> KvCache:
        """Give that slot's cache, empty, for a prefill."""
        if self._prompt is None:
            return KvCache.over(self.keys[:, slot : slot + 1], self.values[:, slot : slot + 1])
        cache = _Rounded.over(self._prompt[0], self._prompt[1])
        cache.into = self, slot
        return cache

    def round(self, slot: int, prompt: tuple[Tensor, Tensor], count: int) -> None:
        """Bring the first positions of full keys and values, (L, 1, h, P, D) each, into a slot."""
        for half, mine, scales in zip(prompt, (self.keys, self.values), self.scales, strict=True):
            written, scale = half[:, 0, :, :count], None  # (L, h, N, D)
            if scales is not None:
                scales[:, slot] = scales_of(written)
                scale = scales[:, slot, :, None, None]
            mine[:, slot, :, :count] = as_cached(written, scale)


class _Rounded(KvCache):
    """The cache of a prefill, which is rounded into its slot once it is whole."""

    into: tuple[SlotCaches, int]

    def advance(self, count: int) -> None:
        super().advance(count)
        caches, slot = self.into
        caches.round(slot, (self.keys, self.values), self.length)


class BatchRows:
    """Buffers of the rows that a step feeds, by what they hold; all but `starts` grow with the rows."""

    def __init__(
        self, config: DecoderConfig, rows: int, splits: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        heads, head_dim, width = config.heads, config.head_dim, config.hidden_size
        chosen, parts = config.experts_per_token, head_parts(config.vocab_size)
        self.x, self.y, self.added = (zeros(rows, width) for _ in range(3))
        self.qkv = zeros(rows, 3 * heads * head_dim)
        self.q = zeros(rows, heads, head_dim)
        self.partial = zeros(rows, splits, heads, head_dim, dtype=torch.float32)
        self.log_sums = zeros(rows, splits, heads, dtype=torch.float32)
        self.mixed = zeros(rows, heads * head_dim)
        self.dense_wide = zeros(rows, 2 * config.intermediate_size)
        self.dense = zeros(rows, config.intermediate_size)
        self.wide = zeros(rows, config.routed_experts + 2 * config.shared_width)
        self.shared = zeros(rows, config.shared_width)
        self.chosen = zeros(rows, chosen, dtype=torch.int32)
        self.weights = zeros(rows, chosen, dtype=torch.float32)
        self.order = zeros(rows * chosen, dtype=torch.int32)
        self.starts = zeros(config.routed_experts + 1, dtype=torch.int32)
        self.gated = zeros(rows * chosen, config.moe_intermediate_size)
        self.routed = zeros(rows, chosen, width)
        self.logits = zeros(rows, config.vocab_size)
        self.best_logit = zeros(rows, parts, dtype=torch.float32)
        self.best_token = zeros(rows, parts, dtype=torch.int32)

    def first(self, rows: int) -> BatchRows:
        """The same buffers' first rows."""
        part, held = copy(self), len(self.x)
        for name, tensor in vars(self).items():
            if name != "starts":
                setattr(part, name, tensor[: len(tensor) * rows // held])
        return part

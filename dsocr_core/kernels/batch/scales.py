"""Caches of 8-bit floats (e4m3) in a batch: a scale for each slot and head, of keys and of values.

Letters: S slots, h heads, P positions, D head dim.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import expect

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
"""Largest finite number of e4m3."""
MOST = tl.constexpr(LARGEST)

Scales = tuple[Tensor | None, Tensor | None]
"""Scales (S, h) float32 of keys and of values; None where they are not stored in 8 bits."""
NO_SCALES: Scales = (None, None)

ROOM = 2.0
"""How many times the prompt's largest value a new token's may be. A float loses no digits by it."""


def scales_of(prompt: Tensor) -> Tensor:
    """Scales (...) of a prompt's keys or values (..., N, D), with room for values ROOM times as large."""
    largest = prompt.float().abs().amax(dim=(-2, -1))
    return torch.where(largest > 0, largest * (ROOM / LARGEST), 1.0)


def as_cached(values: Tensor, scale: Tensor | None) -> Tensor:
    """Round values over their scale to the nearest numbers of 8 bits, at most the largest."""
    return values if scale is None else (values.float() / scale).clamp(-LARGEST, LARGEST).to(FP8)


def expect_cache(q: Tensor, keys: Tensor, values: Tensor, scales: Scales) -> None:
    """Raise ValueError unless both are (S, h, P, D) of the type of `q`, or of 8 bits with scales (S, h)."""
    for name, half, scale in (("keys", keys, scales[0]), ("values", values, scales[1])):
        expect(name, half, tuple(keys.shape), q.dtype if scale is None else FP8, q.device)
        if scale is not None:
            expect(f"scales of {name}", scale, tuple(keys.shape[:2]), torch.float32, q.device)

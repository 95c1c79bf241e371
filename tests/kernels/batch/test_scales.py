"""A batch's cache in 8 bits: what it holds by hand, and the kernels over it against their references."""

from __future__ import annotations

import pytest
import torch

from dsocr_core.kernels.batch.attention import attend_rows, attend_rows_reference, join_rows
from dsocr_core.kernels.batch.rotary import rotary_rows, rotary_rows_reference
from dsocr_core.kernels.batch.scales import FP8, Scales, as_cached
from dsocr_core.kernels.launch import Launch
from tests.kernels.random_tensors import DTYPES, Random, assert_close, state_rows


def scales(which: str, device: torch.device, slots: int, heads: int) -> Scales:
    powers = torch.arange(slots * heads, device=device).view(slots, heads)
    keys, values = 2.0 ** (-3.0 - powers), 2.0 ** (powers - 7.0)
    return keys if "k" in which else None, values if "v" in which else None


@DTYPES
@pytest.mark.parametrize("which", ["v", "kv"])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_over_a_cache_of_8_bits_match_their_references(
    which: str, rows: int, dtype: torch.dtype, device: torch.device
) -> None:
    """A new row is written and read beside 8-bit ones; of a finished slot nothing is."""
    new, slots, heads, dim, capacity = Random(3, dtype, device), 3, 2, 24, 40
    at = state_rows(device, (0, 99, 0, 0, 0), (37, 99, 0, 0, 0), (5, 99, 1, 0, 0))
    by = scales(which, device, slots, heads)
    qkv = new.normal(rows * slots, 3 * heads * dim)
    cos, sin = new.normal(capacity, dim), new.normal(capacity, dim)
    if device.type != "cuda":  # the interpreter's cast does not round: numbers that need no rounding
        qkv, cos, sin = (2 * qkv).round().clamp(-8, 8), torch.ones_like(cos), torch.zeros_like(sin)
    held = [new.normal(slots, heads, capacity, dim) for _ in "kv"]
    cache = [
        as_cached(half, None if scale is None else scale[..., None, None])
        for half, scale in zip(held, by, strict=True)
    ]
    assert [half.dtype for half in cache] == [FP8 if name in which else dtype for name in "kv"]
    cached = []
    for rotary in (rotary_rows, rotary_rows_reference):
        q, halves = new.poison(rows * slots, heads, dim), [half.clone() for half in cache]
        rotary(qkv, cos, sin, at, q, *halves, Launch(16), scales=by)
        cached.append([half.float() for half in halves])
    for got, wanted, before in zip(*cached, cache, strict=True):
        assert torch.equal(got, wanted)
        assert (got != before.float()).any(dim=-1).any(dim=1)[:2].sum(dim=1).tolist() == [rows, rows]
        assert torch.equal(got[2], before[2].float())
    mixed = []
    for attend in (attend_rows, attend_rows_reference):
        partial = new.poison(rows * slots, 3, heads, dim, dtype=torch.float32)
        log_sums = new.poison(rows * slots, 3, heads, dtype=torch.float32)
        mixed.append(new.poison(rows * slots, heads * dim))
        attend(q, *halves, at, partial, log_sums, Launch(16), scales=by)
        join_rows(partial, log_sums, mixed[-1], Launch(16))
    assert_close(*mixed)
    # By hand: slot 0's first row sees its own value alone.
    own = halves[1][0, :, 0].float() * (1 if by[1] is None else by[1][0, :, None])
    assert_close(mixed[0][0], own.flatten().to(dtype))

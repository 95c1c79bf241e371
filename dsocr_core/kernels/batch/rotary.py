# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""A batch: rotary positions of queries and keys, and each slot's new rows of the cache.

Letters: S slots, R rows, h heads, D head dim, P positions a slot's cache holds, T positions of the tables.

A program is one head of one row; row r S + s is r tokens ahead of slot s's current one. A finished slot's
cache stays as it is: the prefill of its next page may be writing it. Moves 6 h D elements a row. A cache of
8-bit floats has them over its slot's and head's scale, to the nearest that there is.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.batch.scales import MOST, NO_SCALES, Scales, as_cached, expect_cache
from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all, overlapping
from dsocr_core.kernels.matvec import rounded
from dsocr_core.kernels.state import (
    AT_SIZE,
    SIZE,
    place,
    place_reference,
    row_position,
    row_position_reference,
)


@triton.jit
def _cached(value, scale, DTYPE: tl.constexpr):
    """The value as a cache of that type stores it."""
    # One return: code after a return in a constant branch would still be compiled.
    if scale is None:
        cached = value.to(DTYPE)
    else:
        cached = tl.minimum(tl.maximum(value.to(tl.float32) / scale, -MOST), MOST).to(DTYPE)
    return cached


@triton.jit
def _rotary_rows(
    qkv, cos, sin, states, q, keys, values, capacity, slots, key_scales, value_scales,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, EVERY: tl.constexpr, RING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    DTYPE: tl.constexpr = q.dtype.element_ty
    HALF: tl.constexpr = HEAD_DIM // 2
    WIDTH: tl.constexpr = HEADS * HEAD_DIM
    number, head = tl.program_id(0), tl.program_id(1)
    slot = number % slots
    position, counts = row_position(states, slot, number // slots)
    own, _ = place(position, states + slot * AT_SIZE, RING)
    pair = tl.arange(0, EVERY)
    live = pair < HALF
    write = live & counts
    entry = position * HEAD_DIM + pair
    cos_first = tl.load(cos + entry, mask=write, other=0.0).to(tl.float32)
    cos_second = tl.load(cos + entry + HALF, mask=write, other=0.0).to(tl.float32)
    sin_first = tl.load(sin + entry, mask=write, other=0.0).to(tl.float32)
    sin_second = tl.load(sin + entry + HALF, mask=write, other=0.0).to(tl.float32)

    row = qkv + number * 3 * WIDTH + head * HEAD_DIM + pair
    first = tl.load(row, mask=live).to(tl.float32)
    second = tl.load(row + HALF, mask=live).to(tl.float32)
    out = q + number * WIDTH + head * HEAD_DIM + pair
    tl.store(
        out, (rounded(first * cos_first, DTYPE) - rounded(second * sin_first, DTYPE)).to(DTYPE), mask=live
    )
    tl.store(
        out + HALF,
        (rounded(second * cos_second, DTYPE) + rounded(first * sin_second, DTYPE)).to(DTYPE),
        mask=live,
    )

    cached = (slot.to(tl.int64) * HEADS + head) * capacity * HEAD_DIM + own * HEAD_DIM + pair
    first = tl.load(row + WIDTH, mask=live).to(tl.float32)
    second = tl.load(row + WIDTH + HALF, mask=live).to(tl.float32)
    KEY: tl.constexpr = keys.dtype.element_ty
    VALUE: tl.constexpr = values.dtype.element_ty
    key_scale, value_scale = None, None
    if key_scales is not None:
        key_scale = tl.load(key_scales + slot * HEADS + head)
    if value_scales is not None:
        value_scale = tl.load(value_scales + slot * HEADS + head)
    rotated = (rounded(first * cos_first, DTYPE) - rounded(second * sin_first, DTYPE)).to(DTYPE)
    tl.store(keys + cached, _cached(rotated, key_scale, KEY), mask=write)
    rotated = (rounded(second * cos_second, DTYPE) + rounded(first * sin_second, DTYPE)).to(DTYPE)
    tl.store(keys + cached + HALF, _cached(rotated, key_scale, KEY), mask=write)
    value = tl.load(row + 2 * WIDTH, mask=live)
    tl.store(values + cached, _cached(value, value_scale, VALUE), mask=write)
    value = tl.load(row + 2 * WIDTH + HALF, mask=live)
    tl.store(values + cached + HALF, _cached(value, value_scale, VALUE), mask=write)


def rotary_rows(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    states: Tensor,
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    launch: Launch,
    ring: int = 0,
    scales: Scales = NO_SCALES,
) -> None:
    """Write the rotated `q` (R, h, D) and each live slot's rows of `keys`, `values` (S, h, P, D).

    `qkv` (R, 3 h D) products of the normed rows; `cos`, `sin` (T, D); `states` (S, SIZE) int32; `ring` slots
    behind each prompt are taken in turn; `scales` (S, h) float32 are those of keys and of values that are
    float8_e4m3fn. `q` of a row that does not count is undefined.
    """
    slots, heads, capacity, head_dim = keys.shape
    if head_dim % 2:
        raise ValueError(f"head dim {head_dim} is odd: rotary positions rotate pairs")
    table, rows = (cos.shape[0], head_dim), qkv.shape[0]
    if rows % slots:
        raise ValueError(f"{rows} rows for {slots} slots")
    expect_all(
        q.dtype, q.device, qkv=(qkv, (rows, 3 * heads * head_dim)), cos=(cos, table), sin=(sin, table),
        q=(q, (rows, heads, head_dim)),
    )  # fmt: skip
    expect_cache(q, keys, values, scales)
    expect("states", states, (slots, SIZE), torch.int32, q.device)
    _rotary_rows[(rows, heads)](
        qkv, cos, sin, states, q, keys, values, capacity, slots, *scales,
        HEADS=heads, HEAD_DIM=head_dim, EVERY=triton.next_power_of_2(head_dim // 2), RING=ring,
        num_warps=launch.warps, **overlapping(q.device),
    )  # fmt: skip


def rotary_rows_reference(qkv, cos, sin, states, q, keys, values, launch=None, ring=0, scales=NO_SCALES):
    """Reference in plain torch."""
    slots, heads, _, head_dim = keys.shape
    position, live = row_position_reference(states, len(qkv))  # (R,)
    position = torch.where(live, position, 0).long()
    parts = qkv.view(len(qkv), 3, heads, head_dim)
    row_cos, row_sin = cos[position, None], sin[position, None]  # (R, 1, D)

    def rotate(z):
        first, second = z.chunk(2, dim=-1)
        rotated: Tensor = z * row_cos + torch.cat([-second, first], dim=-1) * row_sin
        return rotated

    q.copy_(rotate(parts[:, 0]) * live[:, None, None])
    rows = live.nonzero()[:, 0]
    own = [place_reference(states[row % slots], ring, row // slots)[0] for row in rows.tolist()]
    for half, new, scale in zip((keys, values), (rotate(parts[:, 1]), parts[:, 2]), scales, strict=True):
        for row, at in zip(rows.tolist(), own, strict=True):
            by = None if scale is None else scale[row % slots, :, None]
            half[row % slots, :, at] = as_cached(new[row], by)

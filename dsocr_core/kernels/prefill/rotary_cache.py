# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Rotary positions of many tokens, and their keys and values into the cache, in one launch.

Letters: N tokens, h heads, g heads of keys and of values, D head dim, P positions of the cache.

A program is one token's queries, keys or values. Computed in float32 and rounded once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import await_previous, expect, expect_all, overlapping


@triton.jit(do_not_specialize=["start"])
def _rotate_and_cache(
    qkv, cos, sin, q, keys, values, start, key_stride, value_stride,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD_DIM: tl.constexpr, EVERY: tl.constexpr,
    PAIRS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0)
    part = tl.program_id(1)
    head = tl.arange(0, EVERY)[:, None]
    pair = tl.arange(0, PAIRS)[None, :]
    own = tl.where(part == 0, HEADS, GROUPS)
    before = tl.where(part == 0, 0, HEADS + (part - 1) * GROUPS)
    live = (head < own) & (pair < HALF)
    held = qkv + (token.to(tl.int64) * (HEADS + 2 * GROUPS) + before + head) * HEAD_DIM + pair
    first = tl.load(held, mask=live, other=0.0)
    second = tl.load(held + HALF, mask=live, other=0.0)
    position = start + token
    if part < 2:
        entry = position * HEAD_DIM + pair
        inside = pair < HALF
        cos_first = tl.load(cos + entry, mask=inside, other=0.0).to(tl.float32)
        cos_second = tl.load(cos + entry + HALF, mask=inside, other=0.0).to(tl.float32)
        sin_first = tl.load(sin + entry, mask=inside, other=0.0).to(tl.float32)
        sin_second = tl.load(sin + entry + HALF, mask=inside, other=0.0).to(tl.float32)
        one, other = first.to(tl.float32), second.to(tl.float32)
        first = (one * cos_first - other * sin_first).to(qkv.dtype.element_ty)
        second = (other * cos_second + one * sin_second).to(qkv.dtype.element_ty)
    if part == 0:
        at = q + token.to(tl.int64) * HEADS * HEAD_DIM + head * HEAD_DIM + pair
        tl.store(at, first, mask=live)
        tl.store(at + HALF, second, mask=live)
    elif part == 1:
        at = keys + head.to(tl.int64) * key_stride + position * HEAD_DIM + pair
        tl.store(at, first, mask=live)
        tl.store(at + HALF, second, mask=live)
    else:
        at = values + head.to(tl.int64) * value_stride + position * HEAD_DIM + pair
        tl.store(at, first, mask=live)
        tl.store(at + HALF, second, mask=live)


def rotate_and_cache(
    qkv: Tensor, cos: Tensor, sin: Tensor, q: Tensor, keys: Tensor, values: Tensor, start: int
) -> None:
    """Write the rotated `q` (N, h, D), and rows start to start + N of `keys` and `values` (g, P, D).

    `qkv` (N, h + 2 g, D): queries, keys, values; `cos`, `sin` (at least start + N, D). Heads of the cache may
    lie apart; all else is contiguous.
    """
    (tokens, heads, head_dim), (groups, positions, _), device = q.shape, keys.shape, qkv.device
    if head_dim % 2:
        raise ValueError(f"head dim {head_dim} is odd: rotary positions rotate pairs")
    end = start + tokens
    if not tokens or start < 0 or end > min(positions, cos.shape[0]):
        raise ValueError(
            f"positions {start} to {end} of a cache of {positions}, {cos.shape[0]} of the tables"
        )
    expect_all(
        qkv.dtype, device,
        qkv=(qkv, (tokens, heads + 2 * groups, head_dim)), q=(q, (tokens, heads, head_dim)),
        cos=(cos, (cos.shape[0], head_dim)), sin=(sin, (cos.shape[0], head_dim)),
    )  # fmt: skip
    for name, cache in (("keys", keys), ("values", values)):
        if tuple(cache.shape) != (groups, positions, head_dim):
            raise ValueError(f"{name} is {list(cache.shape)}, expected {[groups, positions, head_dim]}")
        expect(f"{name} of a head", cache[0], (positions, head_dim), qkv.dtype, device)
    _rotate_and_cache[(tokens, 3)](
        qkv, cos, sin, q, keys, values, start, keys.stride(0), values.stride(0),
        HEADS=heads, GROUPS=groups, HEAD_DIM=head_dim, EVERY=triton.next_power_of_2(max(heads, groups)),
        PAIRS=triton.next_power_of_2(head_dim // 2), num_warps=4, **overlapping(device),
    )  # fmt: skip


def rotate_and_cache_reference(qkv, cos, sin, q, keys, values, start):
    """Reference in plain torch."""
    (tokens, heads, _), groups = q.shape, len(keys)
    end = start + tokens
    row_cos, row_sin = (table[start:end, None].to(torch.float32) for table in (cos, sin))  # (N, 1, D)

    def rotate(x):
        first, second = x.to(torch.float32).chunk(2, dim=-1)
        rotated: Tensor = x.to(torch.float32) * row_cos + torch.cat([-second, first], dim=-1) * row_sin
        return rotated.to(x.dtype)

    own, k, v = qkv.split([heads, groups, groups], dim=1)
    q.copy_(rotate(own))
    keys[:, start:end], values[:, start:end] = rotate(k).transpose(0, 1), v.transpose(0, 1)

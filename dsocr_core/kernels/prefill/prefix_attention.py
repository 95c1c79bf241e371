# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention within views: over all of a view, or over its first half and rows of the second up to one's own.

Letters: V views, N rows of all views together, h heads, g heads of keys and of values, D head dim.

A program is a block of one view's rows under one head. With halves it reads keys of the second half only for
rows there. Views may differ in length: those of an image are one launch.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import await_previous, expect, expect_all, overlapping

BLOCK = 64
"""Rows of a program, and keys that it reads at once."""


@triton.jit
def _prefix_attention(
    q, keys, values, out, starts, q_row, group_stride, key_row, scale,
    HALVES: tl.constexpr, HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    DTYPE: tl.constexpr = q.dtype.element_ty
    LOG2_E: tl.constexpr = 1.4426950408889634
    first, head, view = tl.program_id(0) * BLOCK, tl.program_id(1), tl.program_id(2)
    start = tl.load(starts + view)
    length = tl.load(starts + view + 1) - start
    half = length
    if HALVES:
        half = length // 2
    if first < length:
        ask, dim = first + tl.arange(0, BLOCK), tl.arange(0, DIMS)
        asks, real_dim = ask < length, dim < HEAD_DIM
        row = (start + ask).to(tl.int64)[:, None]
        at = head * HEAD_DIM + dim[None, :]
        query = tl.load(q + row * q_row + at, mask=asks[:, None] & real_dim[None, :], other=0.0)
        group_start = (head // (HEADS // GROUPS)).to(tl.int64) * group_stride + start.to(tl.int64) * key_row
        best = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        mixed = tl.zeros([BLOCK, DIMS], tl.float32)
        end = tl.where(first + BLOCK > half, tl.minimum(tl.maximum(first + BLOCK, half), length), half)
        for block in range(0, end, BLOCK):
            key = block + tl.arange(0, BLOCK)
            inside = key < end
            key_at = group_start + key * key_row
            k = tl.load(
                keys + key_at[None, :] + dim[:, None], mask=inside[None, :] & real_dim[:, None], other=0.0
            )
            v = tl.load(
                values + key_at[:, None] + dim[None, :], mask=inside[:, None] & real_dim[None, :], other=0.0
            )
            seen = (key < half)[None, :] | ((ask >= half)[:, None] & (key[None, :] <= ask[:, None]))
            scores = tl.dot(query, k, input_precision="ieee") * (scale * LOG2_E)
            scores = tl.where(seen, scores, float("-inf"))
            higher = tl.maximum(best, tl.max(scores, axis=1))
            weights = tl.exp2(scores - higher[:, None])
            shrink = tl.exp2(best - higher)
            total = total * shrink + tl.sum(weights, axis=1)
            mixed = tl.dot(weights.to(DTYPE), v, mixed * shrink[:, None], input_precision="ieee")
            best = higher
        tl.store(
            out + row * (HEADS * HEAD_DIM) + at,
            (mixed / total[:, None]).to(DTYPE),
            mask=asks[:, None] & real_dim[None, :],
        )


def prefix_attention(
    q: Tensor, keys: Tensor, values: Tensor, out: Tensor, starts: Tensor, longest: int, halves: bool = True
) -> None:
    """Write `out` (N, h, D), every row's attention within its view; without `halves` all rows see all.

    `q` (N, h, D); `keys`, `values` (g, N, D); view v has the rows `starts[v]` to `starts[v + 1]`, `longest`
    of them at most; `starts` (V + 1,) int32. Rows of `q`, and rows and heads of keys and values, may lie
    apart.
    """
    (rows, heads, head_dim), groups = q.shape, keys.shape[0]
    if heads % groups:
        raise ValueError(f"{heads} heads of queries, {groups} of keys")
    expect_all(
        q.dtype, q.device, out=(out, (rows, heads, head_dim)), **{"q of a row": (q[0], (heads, head_dim))}
    )
    for name, part in (("keys", keys), ("values", values)):
        if tuple(part.shape) != (groups, rows, head_dim) or part.stride() != keys.stride():
            raise ValueError(
                f"{name} is {list(part.shape)}, expected {[groups, rows, head_dim]}, strides alike"
            )
        expect(f"{name} of a row", part[0, 0], (head_dim,), q.dtype, q.device)
    expect("starts", starts, (starts.shape[0],), torch.int32, q.device)
    _prefix_attention[(triton.cdiv(longest, BLOCK), heads, starts.shape[0] - 1)](
        q, keys, values, out, starts, q.stride(0), keys.stride(0), keys.stride(1), head_dim**-0.5,
        HALVES=halves, HEADS=heads, GROUPS=groups, HEAD_DIM=head_dim,
        DIMS=max(16, triton.next_power_of_2(head_dim)), BLOCK=BLOCK, num_warps=4, num_stages=3,
        **overlapping(q.device),
    )  # fmt: skip


def prefix_attention_reference(q, keys, values, out, starts, longest, halves=True):
    """Reference in plain torch: view by view, with a mask."""
    for start, end in pairwise(starts.tolist()):
        seen = None
        if halves:
            at, half = torch.arange(end - start, device=q.device), (end - start) // 2
            seen = (at < half) | ((at >= half)[:, None] & (at <= at[:, None]))
        k, v = (
            part[:, start:end].repeat_interleave(q.shape[1] // len(part), dim=0) for part in (keys, values)
        )
        mixed = F.scaled_dot_product_attention(q[start:end].transpose(0, 1), k, v, attn_mask=seen)
        out[start:end] = mixed.transpose(0, 1)

"""Triton kernels of attention over a square grid of patches with a row and a column bias, and its gradients.

Letters: B views, H heads, S patches of a grid side, N = S * S patches, D head width.

A block of keys is one row of the grid. A block of queries then has the same column bias in every block of
keys, and one number a query as its row bias: the bias of a score costs an addition. Places of a block beyond
the grid's side have a column bias of minus infinity.

Nothing is added up by two programs: equal inputs give equal gradients. Importing this module needs triton;
`grid_attention` does it when it is called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = math.log2(math.e)
SMALLEST_BLOCK = 16  # of what a matrix product in a kernel takes


@dataclass(frozen=True)
class Launch:
    """Queries that a program has, or meets at a time; warps and stages."""

    queries: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Launches:
    forward: Launch
    query_gradients: Launch
    key_gradients: Launch


# By the grid's side, for bf16 and heads of up to 32: what sm_90 compiles without spilling registers.
LAUNCHES = {
    32: Launches(Launch(128, 8, 3), Launch(64, 4, 2), Launch(32, 4, 2)),
    40: Launches(Launch(64, 4, 3), Launch(64, 4, 2), Launch(64, 4, 2)),
    64: Launches(Launch(128, 8, 3), Launch(64, 4, 2), Launch(64, 4, 2)),
    80: Launches(Launch(64, 4, 2), Launch(64, 8, 2), Launch(32, 8, 2)),
}
SMALL_BLOCKS = Launches(Launch(32, 4, 2), Launch(32, 4, 2), Launch(32, 4, 2))


def keys_of_a_block(side: int) -> int:
    return max(SMALLEST_BLOCK, triton.next_power_of_2(side))


def launches(side: int, width: int, dtype: torch.dtype) -> Launches:
    fits = dtype == torch.bfloat16 and width <= 32
    return LAUNCHES.get(side, SMALL_BLOCKS) if fits else SMALL_BLOCKS


@triton.jit
def _forward(
    q, k, v, rows, columns, out, lse,
    q_view, q_head, q_token, k_view, k_head, k_token, v_view, v_head, v_token, scale,
    HEADS: tl.constexpr, SIDE: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`out` (B, N, H, D) and the base 2 logarithm of each query's sum of weights, `lse` (B, H, N).

    Scores are in units of log 2: `scale` and the bias come with log2(e).
    """
    LOG2_E: tl.constexpr = 1.4426950408889634
    TOKENS: tl.constexpr = SIDE * SIDE
    view, head = tl.program_id(1).to(tl.int64) // HEADS, tl.program_id(1).to(tl.int64) % HEADS
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    place = tl.arange(0, KEYS)
    dim = tl.arange(0, DIM)
    asks = query < TOKENS
    real = place < SIDE

    q_at = q + view * q_view + head * q_head
    q_block = tl.load(q_at + query[:, None] * q_token + dim[None, :], mask=asks[:, None], other=0.0)
    first_query = tl.program_id(1).to(tl.int64) * TOKENS
    row_at = rows + first_query * SIDE + query * SIDE
    column_bias = tl.load(
        columns + first_query * SIDE + query[:, None] * SIDE + place[None, :],
        mask=asks[:, None] & real[None, :], other=0.0,
    )  # fmt: skip
    column_bias = tl.where(real[None, :], column_bias.to(tl.float32) * LOG2_E, float("-inf"))
    k_at = k + view * k_view + head * k_head + place[:, None] * k_token + dim[None, :]
    v_at = v + view * v_view + head * v_head + place[:, None] * v_token + dim[None, :]

    best = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, DIM], tl.float32)
    for y in range(SIDE):
        k_block = tl.load(k_at + y * SIDE * k_token, mask=real[:, None], other=0.0)
        v_block = tl.load(v_at + y * SIDE * v_token, mask=real[:, None], other=0.0)
        row_bias = tl.load(row_at + y, mask=asks, other=0.0).to(tl.float32) * LOG2_E
        scores = tl.dot(q_block, tl.trans(k_block), input_precision="ieee") * scale + column_bias
        # The row bias is the same for all keys of the block: it goes with the maximum, not with each score.
        higher = tl.maximum(best, tl.max(scores, axis=1) + row_bias)
        weights = tl.exp2(scores + (row_bias - higher)[:, None])
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        mixed = tl.dot(weights.to(v_block.dtype), v_block, mixed * shrink[:, None], input_precision="ieee")
        best = higher
    out_at = out + ((view * TOKENS + query[:, None]) * HEADS + head) * DIM + dim[None, :]
    tl.store(out_at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=asks[:, None])
    tl.store(lse + first_query + query, best + tl.log2(total), mask=asks)


@triton.jit
def _query_gradients(
    q, k, v, rows, columns, d_out, lse, delta, d_q, d_rows, d_columns,
    q_view, q_head, q_token, k_view, k_head, k_token, v_view, v_head, v_token, o_view, o_head, o_token, scale,
    HEADS: tl.constexpr, SIDE: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`d_q` (B, N, H, D), `d_rows` and `d_columns` (B, H, N, S) of a block of queries."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    TOKENS: tl.constexpr = SIDE * SIDE
    view, head = tl.program_id(1).to(tl.int64) // HEADS, tl.program_id(1).to(tl.int64) % HEADS
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    place = tl.arange(0, KEYS)
    dim = tl.arange(0, DIM)
    asks = query < TOKENS
    real = place < SIDE
    both = asks[:, None] & real[None, :]

    q_at = q + view * q_view + head * q_head
    q_block = tl.load(q_at + query[:, None] * q_token + dim[None, :], mask=asks[:, None], other=0.0)
    o_at = d_out + view * o_view + head * o_head
    o_block = tl.load(o_at + query[:, None] * o_token + dim[None, :], mask=asks[:, None], other=0.0)
    first_query = tl.program_id(1).to(tl.int64) * TOKENS
    # A query beyond the last has weight 0 for every key.
    its_lse = tl.load(lse + first_query + query, mask=asks, other=float("inf"))
    its_delta = tl.load(delta + first_query + query, mask=asks, other=0.0)
    row_at = first_query * SIDE + query * SIDE
    column_at = first_query * SIDE + query[:, None] * SIDE + place[None, :]
    column_bias = tl.load(columns + column_at, mask=both, other=0.0).to(tl.float32) * LOG2_E
    column_bias = tl.where(real[None, :], column_bias - its_lse[:, None], float("-inf"))
    k_at = k + view * k_view + head * k_head + place[:, None] * k_token + dim[None, :]
    v_at = v + view * v_view + head * v_head + place[:, None] * v_token + dim[None, :]

    q_sum = tl.zeros([QUERIES, DIM], tl.float32)
    column_sum = tl.zeros([QUERIES, KEYS], tl.float32)
    for y in range(SIDE):
        k_block = tl.load(k_at + y * SIDE * k_token, mask=real[:, None], other=0.0)
        v_block = tl.load(v_at + y * SIDE * v_token, mask=real[:, None], other=0.0)
        row_bias = tl.load(rows + row_at + y, mask=asks, other=0.0).to(tl.float32) * LOG2_E
        scores = tl.dot(q_block, tl.trans(k_block), input_precision="ieee") * scale + column_bias
        weights = tl.exp2(scores + row_bias[:, None])
        d_weights = tl.dot(o_block, tl.trans(v_block), input_precision="ieee")
        d_scores = weights * (d_weights - its_delta[:, None])
        column_sum += d_scores
        row_sum = tl.sum(d_scores, axis=1).to(d_rows.dtype.element_ty)
        tl.store(d_rows + row_at + y, row_sum, mask=asks)
        q_sum = tl.dot(d_scores.to(k_block.dtype), k_block, q_sum, input_precision="ieee")
    tl.store(d_columns + column_at, column_sum.to(d_columns.dtype.element_ty), mask=both)
    d_q_at = d_q + ((view * TOKENS + query[:, None]) * HEADS + head) * DIM + dim[None, :]
    # `scale` brings log2(e), which the gradient of the scores does not have.
    tl.store(d_q_at, (q_sum * (scale / LOG2_E)).to(d_q.dtype.element_ty), mask=asks[:, None])


@triton.jit
def _add_block(k_block, v_block, q_block, o_block, bias, its_delta, scale, k_sum, v_sum):
    """What a block of queries adds to the gradients of a row of keys; `bias` (KEYS, QUERIES), less lse."""
    weights = tl.exp2(tl.dot(k_block, tl.trans(q_block), input_precision="ieee") * scale + bias)
    v_sum = tl.dot(weights.to(o_block.dtype), o_block, v_sum, input_precision="ieee")
    d_weights = tl.dot(v_block, tl.trans(o_block), input_precision="ieee")
    d_scores = weights * (d_weights - its_delta[None, :])
    k_sum = tl.dot(d_scores.to(q_block.dtype), q_block, k_sum, input_precision="ieee")
    return k_sum, v_sum


@triton.jit
def _key_gradients(
    q, k, v, rows, columns, d_out, lse, delta, d_k, d_v,
    q_view, q_head, q_token, k_view, k_head, k_token, v_view, v_head, v_token, o_view, o_head, o_token, scale,
    HEADS: tl.constexpr, SIDE: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`d_k` and `d_v` (B, N, H, D) of two rows of keys: the column bias that both need is read once."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    TOKENS: tl.constexpr = SIDE * SIDE
    view, head = tl.program_id(1).to(tl.int64) // HEADS, tl.program_id(1).to(tl.int64) % HEADS
    y = tl.program_id(0) * 2
    place = tl.arange(0, KEYS)
    dim = tl.arange(0, DIM)
    real = place < SIDE
    # The last row of an odd grid is alone: its neighbour's keys are zeros, and are not stored.
    real_next = real & (y + 1 < SIDE)

    key = y * SIDE + place
    k_at = k + view * k_view + head * k_head + key[:, None] * k_token + dim[None, :]
    v_at = v + view * v_view + head * v_head + key[:, None] * v_token + dim[None, :]
    k_block = tl.load(k_at, mask=real[:, None], other=0.0)
    v_block = tl.load(v_at, mask=real[:, None], other=0.0)
    k_next = tl.load(k_at + SIDE * k_token, mask=real_next[:, None], other=0.0)
    v_next = tl.load(v_at + SIDE * v_token, mask=real_next[:, None], other=0.0)
    q_at = q + view * q_view + head * q_head + dim[None, :]
    o_at = d_out + view * o_view + head * o_head + dim[None, :]
    first_query = tl.program_id(1).to(tl.int64) * TOKENS
    row_at = rows + first_query * SIDE + y
    column_at = columns + first_query * SIDE + place[:, None]

    k_sum = tl.zeros([KEYS, DIM], tl.float32)
    v_sum = tl.zeros([KEYS, DIM], tl.float32)
    k_next_sum = tl.zeros([KEYS, DIM], tl.float32)
    v_next_sum = tl.zeros([KEYS, DIM], tl.float32)
    for first in range(0, TOKENS, QUERIES):
        query = first + tl.arange(0, QUERIES)
        asks = query < TOKENS
        q_block = tl.load(q_at + query[:, None] * q_token, mask=asks[:, None], other=0.0)
        o_block = tl.load(o_at + query[:, None] * o_token, mask=asks[:, None], other=0.0)
        # A query beyond the last has weight 0 for every key.
        its_lse = tl.load(lse + first_query + query, mask=asks, other=float("inf"))
        its_delta = tl.load(delta + first_query + query, mask=asks, other=0.0)
        column_bias = tl.load(
            column_at + query[None, :] * SIDE, mask=real[:, None] & asks[None, :], other=0.0
        )
        column_bias = tl.where(real[:, None], column_bias.to(tl.float32) * LOG2_E, float("-inf"))
        row_bias = tl.load(row_at + query * SIDE, mask=asks, other=0.0).to(tl.float32) * LOG2_E
        k_sum, v_sum = _add_block(
            k_block, v_block, q_block, o_block, column_bias + (row_bias - its_lse)[None, :], its_delta, scale,
            k_sum, v_sum,
        )  # fmt: skip
        row_bias = tl.load(row_at + query * SIDE + 1, mask=asks & (y + 1 < SIDE), other=0.0)
        row_bias = row_bias.to(tl.float32) * LOG2_E
        k_next_sum, v_next_sum = _add_block(
            k_next, v_next, q_block, o_block, column_bias + (row_bias - its_lse)[None, :], its_delta, scale,
            k_next_sum, v_next_sum,
        )  # fmt: skip
    at = ((view * TOKENS + key[:, None]) * HEADS + head) * DIM + dim[None, :]
    dtype = d_k.dtype.element_ty
    tl.store(d_k + at, (k_sum * (scale / LOG2_E)).to(dtype), mask=real[:, None])
    tl.store(d_v + at, v_sum.to(dtype), mask=real[:, None])
    at += SIDE * HEADS * DIM
    tl.store(d_k + at, (k_next_sum * (scale / LOG2_E)).to(dtype), mask=real_next[:, None])
    tl.store(d_v + at, v_next_sum.to(dtype), mask=real_next[:, None])


def _whole_heads(x: Tensor) -> Tensor:
    """`x` with each head's numbers side by side; the other strides are the kernels' arguments."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _sizes(q: Tensor, side: int) -> dict[str, int]:
    return {"HEADS": q.shape[1], "SIDE": side, "KEYS": keys_of_a_block(side), "DIM": q.shape[3]}


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, out: Tensor, lse: Tensor
) -> None:
    """Writes `out`, (B, H, N, D) over memory of (B, N, H, D), and `lse` (B, H, N)."""
    views, heads, tokens, width = q.shape
    side = rows.shape[-1]
    launch = launches(side, width, q.dtype).forward
    q, k, v = _whole_heads(q), _whole_heads(k), _whole_heads(v)
    _forward[(triton.cdiv(tokens, launch.queries), views * heads)](
        q, k, v, rows.contiguous(), columns.contiguous(), out, lse, *_strides(q, k, v), width**-0.5 * LOG2_E,
        **_sizes(q, side), QUERIES=launch.queries, num_warps=launch.warps, num_stages=launch.stages,
    )  # fmt: skip


def run_backward(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, d_out: Tensor, lse: Tensor, delta: Tensor,
    d_q: Tensor, d_k: Tensor, d_v: Tensor, d_rows: Tensor, d_columns: Tensor,
) -> None:  # fmt: skip
    """Writes the five gradients; those of q, k and v over memory of (B, N, H, D)."""
    views, heads, tokens, width = q.shape
    side = rows.shape[-1]
    chosen = launches(side, width, q.dtype)
    q, k, v, d_out = (_whole_heads(x) for x in (q, k, v, d_out))
    rows, columns, delta = rows.contiguous(), columns.contiguous(), delta.contiguous()
    scale = width**-0.5 * LOG2_E
    strides, sizes = _strides(q, k, v, d_out), _sizes(q, side)
    launch = chosen.query_gradients
    _query_gradients[(triton.cdiv(tokens, launch.queries), views * heads)](
        q, k, v, rows, columns, d_out, lse, delta, d_q, d_rows, d_columns, *strides, scale,
        **sizes, QUERIES=launch.queries, num_warps=launch.warps, num_stages=launch.stages,
    )  # fmt: skip
    launch = chosen.key_gradients
    _key_gradients[(triton.cdiv(side, 2), views * heads)](
        q, k, v, rows, columns, d_out, lse, delta, d_k, d_v, *strides, scale,
        **sizes, QUERIES=launch.queries, num_warps=launch.warps, num_stages=launch.stages,
    )  # fmt: skip

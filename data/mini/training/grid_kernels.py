"""Triton kernels of attention over a square grid of patches with a row and a column bias, and its gradients.

Letters: B views, H heads, S patches of a grid side, N = S * S patches, D head width, T tiles of a side.

A block of keys is a tile of 8 x 8 patches: a query has 8 numbers as its row bias there and 8 as its column
bias, and their 64 sums are what the product of queries and keys starts from, one addition a score. Every
side in use is a multiple of 8; of another one, the places of a tile beyond the grid have a bias of minus
infinity.

Scores are kept as q k^T + bias * `root`, sqrt(D); `scale`, log2(e) / sqrt(D), turns them into powers of
two. Nothing is added up by two programs: equal inputs give equal gradients. Importing this module needs
triton; `grid_attention` does it when it is called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 8
LOG2_E = math.log2(math.e)


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


# By the grid's side, for bf16 and heads of up to 32. Compiled for sm_90, the forward pass and the gradients
# of keys spill no register; those of queries do, in 1 to 2% of their instructions, 5% at side 32.
LAUNCHES = {
    32: Launches(Launch(128, 8, 3), Launch(64, 4, 2), Launch(64, 4, 2)),
    40: Launches(Launch(128, 8, 3), Launch(64, 4, 2), Launch(64, 4, 2)),
    64: Launches(Launch(128, 8, 3), Launch(128, 8, 2), Launch(64, 4, 2)),
    80: Launches(Launch(128, 8, 3), Launch(128, 8, 2), Launch(64, 4, 2)),
}
SMALL_BLOCKS = Launches(Launch(32, 4, 2), Launch(32, 4, 2), Launch(32, 4, 2))


def launches(side: int, width: int, dtype: torch.dtype) -> Launches:
    fits = dtype == torch.bfloat16 and width <= 32
    return LAUNCHES.get(side, SMALL_BLOCKS) if fits else SMALL_BLOCKS


@triton.jit
def _tile_bias(bias_at, first, asks, root, SIDE: tl.constexpr, TILE: tl.constexpr):
    """A block of queries' bias for 8 rows or columns from `first` on, (QUERIES, 8)."""
    inside = first + tl.arange(0, TILE) < SIDE
    bias = tl.load(bias_at + first, mask=asks[:, None] & inside[None, :], other=0.0).to(tl.float32) * root
    if SIDE % TILE != 0:
        bias = tl.where(inside[None, :], bias, float("-inf"))
    return bias


@triton.jit
def _forward(
    q, k, v, rows, columns, out, lse,
    q_view, q_head, q_token, k_view, k_head, k_token, v_view, v_head, v_token, scale, root,
    HEADS: tl.constexpr, SIDE: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`out` (B, N, H, D) and the base 2 logarithm of each query's sum of weights, `lse` (B, H, N)."""
    TOKENS: tl.constexpr = SIDE * SIDE
    KEYS: tl.constexpr = TILE * TILE
    view, head = tl.program_id(1).to(tl.int64) // HEADS, tl.program_id(1).to(tl.int64) % HEADS
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    asks = query < TOKENS
    key_y, key_x = tl.arange(0, KEYS) // TILE, tl.arange(0, KEYS) % TILE
    dim = tl.arange(0, DIM)
    first_query = tl.program_id(1).to(tl.int64) * TOKENS
    bias_at = (first_query + query[:, None]) * SIDE + tl.arange(0, TILE)[None, :]
    q_at = q + view * q_view + head * q_head
    q_block = tl.load(q_at + query[:, None] * q_token + dim[None, :], mask=asks[:, None], other=0.0)
    k_at = k + view * k_view + head * k_head + dim[None, :]
    v_at = v + view * v_view + head * v_head + dim[None, :]

    best = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, DIM], tl.float32)
    for left in range(0, SIDE, TILE):
        column_bias = _tile_bias(columns + bias_at, left, asks, root, SIDE, TILE)
        for top in range(0, SIDE, TILE):
            y, x = top + key_y, left + key_x
            real = (y < SIDE) & (x < SIDE)
            token = (y * SIDE + x)[:, None]
            k_block = tl.load(k_at + token * k_token, mask=real[:, None], other=0.0)
            v_block = tl.load(v_at + token * v_token, mask=real[:, None], other=0.0)
            row_bias = _tile_bias(rows + bias_at, top, asks, root, SIDE, TILE)
            bias = tl.reshape(row_bias[:, :, None] + column_bias[:, None, :], [QUERIES, KEYS])
            scores = tl.dot(q_block, tl.trans(k_block), bias, input_precision="ieee")
            higher = tl.maximum(best, tl.max(scores, axis=1))
            weights = tl.exp2(scores * scale - (higher * scale)[:, None])
            shrink = tl.exp2((best - higher) * scale)
            total = total * shrink + tl.sum(weights, axis=1)
            mixed = tl.dot(
                weights.to(v_block.dtype), v_block, mixed * shrink[:, None], input_precision="ieee"
            )
            best = higher
    out_at = out + ((view * TOKENS + query[:, None]) * HEADS + head) * DIM + dim[None, :]
    tl.store(out_at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=asks[:, None])
    tl.store(lse + first_query + query, best * scale + tl.log2(total), mask=asks)


@triton.jit
def _query_gradients(
    q, k, v, rows, columns, d_out, lse, delta, d_q, d_rows, d_columns,
    q_view, q_head, q_token, k_view, k_head, k_token, v_view, v_head, v_token, o_view, o_head, o_token,
    scale, root,
    HEADS: tl.constexpr, SIDE: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`d_q` (B, N, H, D), `d_rows` and `d_columns` (B, H, N, S) of a block of queries.

    All tiles beside each other are one round of the loop: the sums of the T columns of tiles stay in
    registers, each under its own name.
    """
    TOKENS: tl.constexpr = SIDE * SIDE
    KEYS: tl.constexpr = TILE * TILE
    TILES: tl.constexpr = (SIDE + TILE - 1) // TILE
    view, head = tl.program_id(1).to(tl.int64) // HEADS, tl.program_id(1).to(tl.int64) % HEADS
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    asks = query < TOKENS
    step = tl.arange(0, TILE)
    key_y, key_x = tl.arange(0, KEYS) // TILE, tl.arange(0, KEYS) % TILE
    dim = tl.arange(0, DIM)
    first_query = tl.program_id(1).to(tl.int64) * TOKENS
    bias_at = (first_query + query[:, None]) * SIDE + step[None, :]
    q_at = q + view * q_view + head * q_head
    q_block = tl.load(q_at + query[:, None] * q_token + dim[None, :], mask=asks[:, None], other=0.0)
    o_at = d_out + view * o_view + head * o_head
    o_block = tl.load(o_at + query[:, None] * o_token + dim[None, :], mask=asks[:, None], other=0.0)
    # A query beyond the last has weight 0 for every key.
    its_lse = tl.load(lse + first_query + query, mask=asks, other=float("inf"))
    its_delta = tl.load(delta + first_query + query, mask=asks, other=0.0)
    k_at = k + view * k_view + head * k_head + dim[None, :]
    v_at = v + view * v_view + head * v_head + dim[None, :]

    q_sum = tl.zeros([QUERIES, DIM], tl.float32)
    column_sums = ()
    for _ in tl.static_range(TILES):
        column_sums = column_sums + (tl.zeros([QUERIES, TILE], tl.float32),)  # noqa: RUF005 - Triton has no star
    for top in range(0, SIDE, TILE):
        row_bias = _tile_bias(rows + bias_at, top, asks, root, SIDE, TILE)
        # Neighbours are added here, the four that other threads hold after the loop.
        row_sum = tl.zeros([QUERIES, TILE, TILE // 2], tl.float32)
        new_sums = ()
        for across in tl.static_range(TILES):
            y, x = top + key_y, across * TILE + key_x
            real = (y < SIDE) & (x < SIDE)
            token = (y * SIDE + x)[:, None]
            k_block = tl.load(k_at + token * k_token, mask=real[:, None], other=0.0)
            v_block = tl.load(v_at + token * v_token, mask=real[:, None], other=0.0)
            column_bias = _tile_bias(columns + bias_at, across * TILE, asks, root, SIDE, TILE)
            bias = tl.reshape(row_bias[:, :, None] + column_bias[:, None, :], [QUERIES, KEYS])
            scores = tl.dot(q_block, tl.trans(k_block), bias, input_precision="ieee")
            weights = tl.exp2(scores * scale - its_lse[:, None])
            d_weights = tl.dot(o_block, tl.trans(v_block), input_precision="ieee")
            d_scores = weights * (d_weights - its_delta[:, None])
            q_sum = tl.dot(d_scores.to(k_block.dtype), k_block, q_sum, input_precision="ieee")
            by_row = tl.reshape(d_scores, [QUERIES, TILE, TILE])
            new_sums = new_sums + (column_sums[across] + tl.sum(by_row, axis=1),)  # noqa: RUF005
            row_sum += tl.sum(tl.reshape(d_scores, [QUERIES, TILE, TILE // 2, 2]), axis=3)
        column_sums = new_sums
        whole = tl.sum(row_sum, axis=2).to(d_rows.dtype.element_ty)
        tl.store(d_rows + bias_at + top, whole, mask=asks[:, None] & (top + step < SIDE)[None, :])
    for across in tl.static_range(TILES):
        whole = column_sums[across].to(d_columns.dtype.element_ty)
        inside = across * TILE + step < SIDE
        tl.store(d_columns + bias_at + across * TILE, whole, mask=asks[:, None] & inside[None, :])
    d_q_at = d_q + ((view * TOKENS + query[:, None]) * HEADS + head) * DIM + dim[None, :]
    tl.store(d_q_at, (q_sum / root).to(d_q.dtype.element_ty), mask=asks[:, None])


@triton.jit
def _key_gradients(
    q, k, v, rows, columns, d_out, lse, delta, d_k, d_v,
    q_view, q_head, q_token, k_view, k_head, k_token, v_view, v_head, v_token, o_view, o_head, o_token,
    scale, root,
    HEADS: tl.constexpr, SIDE: tl.constexpr, TILE: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """`d_k` and `d_v` (B, N, H, D) of a tile of keys."""
    TOKENS: tl.constexpr = SIDE * SIDE
    KEYS: tl.constexpr = TILE * TILE
    TILES: tl.constexpr = (SIDE + TILE - 1) // TILE
    view, head = tl.program_id(1).to(tl.int64) // HEADS, tl.program_id(1).to(tl.int64) % HEADS
    top, left = tl.program_id(0) // TILES * TILE, tl.program_id(0) % TILES * TILE
    step = tl.arange(0, TILE)
    dim = tl.arange(0, DIM)
    y, x = top + tl.arange(0, KEYS) // TILE, left + tl.arange(0, KEYS) % TILE
    real = ((y < SIDE) & (x < SIDE))[:, None]
    token = (y * SIDE + x)[:, None]
    k_at = k + view * k_view + head * k_head + token * k_token + dim[None, :]
    v_at = v + view * v_view + head * v_head + token * v_token + dim[None, :]
    k_block = tl.load(k_at, mask=real, other=0.0)
    v_block = tl.load(v_at, mask=real, other=0.0)
    q_at = q + view * q_view + head * q_head + dim[None, :]
    o_at = d_out + view * o_view + head * o_head + dim[None, :]
    first_query = tl.program_id(1).to(tl.int64) * TOKENS
    row_at = rows + first_query * SIDE + (top + step)[:, None]
    column_at = columns + first_query * SIDE + (left + step)[:, None]

    k_sum = tl.zeros([KEYS, DIM], tl.float32)
    v_sum = tl.zeros([KEYS, DIM], tl.float32)
    for first in range(0, TOKENS, QUERIES):
        query = first + tl.arange(0, QUERIES)
        asks = query < TOKENS
        q_block = tl.load(q_at + query[:, None] * q_token, mask=asks[:, None], other=0.0)
        o_block = tl.load(o_at + query[:, None] * o_token, mask=asks[:, None], other=0.0)
        # A query beyond the last has weight 0 for every key.
        its_lse = tl.load(lse + first_query + query, mask=asks, other=float("inf"))
        its_delta = tl.load(delta + first_query + query, mask=asks, other=0.0)
        in_rows = asks[None, :] & (top + step < SIDE)[:, None]
        in_columns = asks[None, :] & (left + step < SIDE)[:, None]
        row_bias = tl.load(row_at + query[None, :] * SIDE, mask=in_rows, other=0.0).to(tl.float32)
        column_bias = tl.load(column_at + query[None, :] * SIDE, mask=in_columns, other=0.0).to(tl.float32)
        if SIDE % TILE != 0:
            row_bias = tl.where((top + step < SIDE)[:, None], row_bias, float("-inf"))
            column_bias = tl.where((left + step < SIDE)[:, None], column_bias, float("-inf"))
        bias = tl.reshape((row_bias * root)[:, None, :] + (column_bias * root)[None, :, :], [KEYS, QUERIES])
        scores = tl.dot(k_block, tl.trans(q_block), bias, input_precision="ieee")
        weights = tl.exp2(scores * scale - its_lse[None, :])
        v_sum = tl.dot(weights.to(o_block.dtype), o_block, v_sum, input_precision="ieee")
        d_weights = tl.dot(v_block, tl.trans(o_block), input_precision="ieee")
        d_scores = weights * (d_weights - its_delta[None, :])
        k_sum = tl.dot(d_scores.to(q_block.dtype), q_block, k_sum, input_precision="ieee")
    at = ((view * TOKENS + token) * HEADS + head) * DIM + dim[None, :]
    tl.store(d_k + at, (k_sum / root).to(d_k.dtype.element_ty), mask=real)
    tl.store(d_v + at, v_sum.to(d_v.dtype.element_ty), mask=real)


def _whole_heads(x: Tensor) -> Tensor:
    """`x` with each head's numbers side by side; the other strides are the kernels' arguments."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def _sizes(q: Tensor, side: int) -> dict[str, int]:
    return {"HEADS": q.shape[1], "SIDE": side, "TILE": TILE, "DIM": q.shape[3]}


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, out: Tensor, lse: Tensor
) -> None:
    """Writes `out`, (B, H, N, D) over memory of (B, N, H, D), and `lse` (B, H, N)."""
    views, heads, tokens, width = q.shape
    side = rows.shape[-1]
    launch = launches(side, width, q.dtype).forward
    q, k, v = _whole_heads(q), _whole_heads(k), _whole_heads(v)
    scale = width**-0.5 * LOG2_E
    _forward[(triton.cdiv(tokens, launch.queries), views * heads)](
        q, k, v, rows.contiguous(), columns.contiguous(), out, lse, *_strides(q, k, v), scale, width**0.5,
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
        q, k, v, rows, columns, d_out, lse, delta, d_q, d_rows, d_columns, *strides, scale, width**0.5,
        **sizes, QUERIES=launch.queries, num_warps=launch.warps, num_stages=launch.stages,
    )  # fmt: skip
    launch = chosen.key_gradients
    _key_gradients[(triton.cdiv(side, TILE) ** 2, views * heads)](
        q, k, v, rows, columns, d_out, lse, delta, d_k, d_v, *strides, scale, width**0.5,
        **sizes, QUERIES=launch.queries, num_warps=launch.warps, num_stages=launch.stages,
    )  # fmt: skip

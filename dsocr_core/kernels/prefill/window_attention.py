# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention inside square windows of a grid with a decomposed relative position bias, never materialised.

Letters: B views, G patches along a view's side, N = G*G, S patches along a window's side, h heads, D head
dim, C = h D width.

The bias of a query at (r, c) to a key at (r', c') is its product with two table rows, one for r - r' and one
for c - c'. The products with *all* rows of both tables are one small matrix product before this kernel
(`position_terms`); here they are looked up. Keys are taken as whole window rows, as many as fit a block, so
that the column terms are the same for every block and stay in registers. Row terms are a few numbers a query:
of one row they move the maximum, of several they join the scores by a small product with ones and zeros.

Windows are addressed by their position in the grid: no copy splits or joins them. As the published code pads
the grid *before* the projection, a position outside the grid has the projection's bias as its key and value.
Global attention is one window of the whole grid.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Tile, await_previous, expect_all, overlapping

BEYOND = tl.constexpr(-1e30)  # term of a row of keys beyond the window
"""Position term of a key outside the window, whose weight becomes 0."""


def window_launch(side: int, roomy: bool = False) -> Tile:
    """Tile of queries and keys for such windows: whole rows of keys, a quarter of a block empty at most.

    Of large blocks a third stage needs a `roomy` device.
    """
    for keys in (32, 64):
        if side <= keys and keys % side <= keys // 4:
            return Tile(64, keys, stages=3)
    keys = max(128, triton.next_power_of_2(side))
    return Tile(64, keys, stages=3 if roomy and keys == 128 else 2)


@triton.jit
def _window_attention(
    qkv, bias, terms, out, tokens, grid_side, across, scale,
    SIDE: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    DTYPE: tl.constexpr = qkv.dtype.element_ty
    LOG2_E: tl.constexpr = 1.4426950408889634
    WIDTH: tl.constexpr = HEADS * HEAD_DIM
    KEY_ROWS: tl.constexpr = KEYS // SIDE
    head = tl.program_id(1)
    window = tl.program_id(2)
    in_view = window % (across * across)
    view_start = window // (across * across) * grid_side * grid_side
    top = in_view // across * SIDE
    left = in_view % across * SIDE
    if top + tl.program_id(0) * QUERIES // SIDE >= grid_side:
        return  # none of these queries is a patch
    dim = tl.arange(0, DIMS)
    real_dim = dim < HEAD_DIM

    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    query_row = query // SIDE
    query_column = query % SIDE
    asks = (query < SIDE * SIDE) & (top + query_row < grid_side) & (left + query_column < grid_side)
    token = (view_start + (top + query_row) * grid_side + left + query_column).to(tl.int64)
    q = tl.load(
        qkv + token[:, None] * (3 * WIDTH) + head * HEAD_DIM + dim[None, :],
        mask=asks[:, None] & real_dim[None, :], other=0.0,
    )  # fmt: skip
    terms_at = terms + (head.to(tl.int64) * tokens + token) * (4 * SIDE)

    key = tl.arange(0, KEYS)
    key_row = key // SIDE
    key_column = key % SIDE
    real_key = key < KEY_ROWS * SIDE
    column_terms = tl.load(
        terms_at[:, None] + (3 * SIDE - 2 + query_column[:, None] - key_column[None, :]),
        mask=asks[:, None] & real_key[None, :], other=0.0,
    )  # fmt: skip
    column_terms = tl.where(real_key[None, :], column_terms.to(tl.float32) * LOG2_E, float("-inf"))
    if KEY_ROWS > 1:
        step = tl.arange(0, ROWS)
        of_row = (key_row[None, :] == step[:, None]).to(tl.float32).to(DTYPE)  # (ROWS, KEYS)

    best = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, DIMS], tl.float32)
    row_terms_at = terms_at + SIDE - 1 + query_row
    following = tl.load(row_terms_at, mask=asks, other=0.0)
    for first in range(0, SIDE, KEY_ROWS):
        row = first + key_row
        read = real_key & (row < SIDE)
        key_token = (view_start + (top + row) * grid_side + left + key_column).to(tl.int64)
        key_at = qkv + key_token * (3 * WIDTH)
        if PADDED:  # masked by address, so that loads need not wait for each other
            outside = (top + row >= grid_side) | (left + key_column >= grid_side)
            key_at = tl.where(outside, bias + tl.zeros_like(key_token), key_at)
        key_at += WIDTH + head * HEAD_DIM
        k = tl.load(key_at[None, :] + dim[:, None], mask=read[None, :] & real_dim[:, None], other=0.0)
        v = tl.load(key_at[:, None] + WIDTH + dim[None, :], mask=read[:, None] & real_dim[None, :], other=0.0)
        # A term of a whole row of keys is added to the maximum, not to each score.
        shared_term = tl.zeros([QUERIES], tl.float32)
        if KEY_ROWS == 1:
            scores = tl.dot(q, k, input_precision="ieee")
            shared_term = following.to(tl.float32) * LOG2_E
            following = tl.load(row_terms_at - first - 1, mask=asks & (first + 1 < SIDE), other=0.0)
        else:  # several rows' terms are a product too, with ones where a key is of the row
            inside = (step < KEY_ROWS) & (first + step < SIDE)
            row_terms = tl.load(
                row_terms_at[:, None] - first - step[None, :], mask=asks[:, None] & inside[None, :], other=0.0
            )
            # A row beyond the window must not count; infinity times zero would be NaN.
            row_terms = tl.where(inside[None, :], row_terms.to(tl.float32) / scale, BEYOND).to(DTYPE)
            scores = tl.dot(row_terms, of_row, input_precision="ieee")
            scores = tl.dot(q, k, scores, input_precision="ieee")
        scores = scores * (scale * LOG2_E) + column_terms
        higher = tl.maximum(best, tl.max(scores, axis=1) + shared_term)
        weights = tl.exp2(scores - (higher - shared_term)[:, None])
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        mixed = tl.dot(weights.to(DTYPE), v, mixed * shrink[:, None], input_precision="ieee")
        best = higher
    out_at = out + token[:, None] * WIDTH + head * HEAD_DIM + dim[None, :]
    tl.store(out_at, (mixed / total[:, None]).to(DTYPE), mask=asks[:, None] & real_dim[None, :])


def window_attention(
    qkv: Tensor, bias: Tensor, terms: Tensor, out: Tensor, grid_side: int, window: int, launch: Tile
) -> None:
    """Write `out` (B N, C), every patch's attention inside its window.

    `qkv` (B N, 3, h, D); `bias` (3 C,) of its projection; `terms` (h, B N, 4 S) of `position_terms`. Raises
    ValueError when these do not fit each other, or a window row does not fit a block of keys.
    """
    tokens, three, heads, head_dim = qkv.shape
    width = heads * head_dim
    expect_all(
        qkv.dtype, qkv.device, qkv=(qkv, (tokens, 3, heads, head_dim)), bias=(bias, (3 * width,)),
        terms=(terms, (heads, tokens, 4 * window)), out=(out, (tokens, width)),
    )  # fmt: skip
    if three != 3 or not tokens or tokens % grid_side**2:
        raise ValueError(f"{tokens} patches are no views of {grid_side} x {grid_side}")
    if window > launch.columns or window > grid_side:
        raise ValueError(f"a window side of {window} in a grid of {grid_side}, {launch.columns} keys a block")
    across = triton.cdiv(grid_side, window)
    grid = (triton.cdiv(window**2, launch.rows), heads, tokens // grid_side**2 * across**2)
    _window_attention[grid](
        qkv, bias, terms, out, tokens, grid_side, across, head_dim**-0.5,
        SIDE=window, HEADS=heads, HEAD_DIM=head_dim, DIMS=max(16, triton.next_power_of_2(head_dim)),
        PADDED=grid_side % window != 0, ROWS=max(16, triton.next_power_of_2(launch.columns // window)),
        QUERIES=launch.rows, KEYS=launch.columns, num_warps=launch.warps, num_stages=launch.stages,
        **overlapping(out.device),
    )  # fmt: skip


def position_tables(rows: Tensor, columns: Tensor) -> Tensor:
    """Join both tables (2 S - 1, D) into the right side of one product: (D, 4 S), two columns unused."""
    side, head_dim = (rows.shape[0] + 1) // 2, rows.shape[1]
    unused = rows.new_zeros(2, head_dim)
    return torch.cat([rows, columns, unused]).t().contiguous().view(head_dim, 4 * side)


def position_terms(qkv: Tensor, tables: Tensor) -> Tensor:
    """Every query's product with every row of both tables: (B N, 3, h, D) and (D, 4 S) -> (h, B N, 4 S)"""
    queries = qkv[:, 0].transpose(0, 1)  # (h, B N, D)
    return torch.bmm(queries, tables.expand(queries.shape[0], -1, -1))


def window_attention_reference(qkv, bias, terms, out, grid_side, window, launch=None):
    """Reference: torch's attention on windows cut out with padding, and with the bias as a tensor."""
    tokens, _, heads, head_dim = qkv.shape
    n, beyond = window**2, -grid_side % window
    # The patches of every window; where a window has none the one behind the last, whose key is the bias.
    patches = torch.arange(tokens, device=qkv.device).view(-1, grid_side, grid_side)
    padded = F.pad(patches, (0, beyond, 0, beyond), value=tokens)
    at = padded.unfold(1, window, window).unfold(2, window, window).reshape(-1, n)  # (windows, S S)
    parts = torch.cat([qkv.flatten(1), bias[None]])[at].view(-1, n, 3, heads, head_dim)
    q, k, v = parts.permute(2, 0, 3, 1, 4)  # (windows, h, S S, D)
    held = F.pad(terms, (0, 0, 0, 1))[:, at].transpose(0, 1)  # (windows, h, S S, 4 S)
    inside = torch.arange(n, device=qkv.device)
    row, column = inside // window, inside % window
    to_row = (window - 1 + row[:, None] - row[None, :]).expand(*held.shape[:2], -1, -1)
    to_column = (3 * window - 2 + column[:, None] - column[None, :]).expand(*held.shape[:2], -1, -1)
    mask = held.gather(3, to_row) + held.gather(3, to_column)  # (windows, h, S S, S S)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
    out[at[at < tokens]] = mixed[at < tokens]

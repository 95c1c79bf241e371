# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# mypy: disable-error-code="var-annotated", no-warn-unreachable
"""Products of K rows with weights that are read once: attention's inputs and its output.

Letters: K rows, C hidden size, h heads, D head dim, P positions the cache holds, p position of row 0.

The vectors are normed and rounded before (`norm_rows`), in the one-row kernels' order. Each row's product
is made by itself, as `matvec.dot_rows` makes it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.attention_output import filled_parts, load_parts, merged
from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all, rows_at_once
from dsocr_core.kernels.matvec import dot_row, extended, load_row, load_rows, load_vector, rounded
from dsocr_core.kernels.rms_norm import normed
from dsocr_core.kernels.state import AT_POSITION, SIZE, place


@triton.jit
def _norm_rows(x, gain, y, eps, WIDTH: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr):
    DTYPE: tl.constexpr = x.dtype.element_ty
    row = tl.program_id(0) * WIDTH
    gains = load_vector(gain, WIDTH, CHUNK)
    await_previous(PDL)
    out = normed(load_vector(x + row, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    for c in tl.static_range((WIDTH + CHUNK - 1) // CHUNK):
        cols = c * CHUNK + tl.arange(0, CHUNK)
        tl.store(y + row + cols, out[c].to(DTYPE), mask=cols < WIDTH)


@triton.jit
def _qkv_rows(
    y, q_weight, k_weight, v_weight, cos, sin, state, q, keys, values, capacity,
    GROUP: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr,
    PAIRS: tl.constexpr, CHUNK: tl.constexpr, RING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = y.dtype.element_ty
    HALF: tl.constexpr = HEAD_DIM // 2
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    head, part = tl.program_id(1), tl.program_id(2) % 3
    ahead = tl.program_id(2) // 3 * GROUP
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    live = pair < HALF
    weight = tl.where(part == 0, q_weight, tl.where(part == 1, k_weight, v_weight))
    rows = weight + (head * HEAD_DIM + pair).to(tl.int64) * WIDTH
    first_rows = load_rows(rows, live, WIDTH, CHUNK)
    second_rows = load_rows(rows + HALF * WIDTH, live, WIDTH, CHUNK)
    position = tl.load(state + AT_POSITION, cache_modifier=".cg") + ahead
    turns = ()
    for r in tl.static_range(GROUP):
        turn = (position + r) * HEAD_DIM + pair
        turns = extended(turns, tl.load(cos + turn, mask=live))
        turns = extended(turns, tl.load(cos + turn + HALF, mask=live))
        turns = extended(turns, tl.load(sin + turn, mask=live))
        turns = extended(turns, tl.load(sin + turn + HALF, mask=live))
    await_previous(PDL)
    # All sums before the first store: a store's barriers would keep the next row's loads behind them.
    firsts, seconds = (), ()
    for r in tl.static_range(GROUP):
        vector = load_row(y + (ahead + r) * WIDTH, WIDTH, PAIRS, CHUNK, "")
        firsts = extended(firsts, rounded(dot_row(first_rows, vector, COUNT, PAIRS, CHUNK), DTYPE))
        seconds = extended(seconds, rounded(dot_row(second_rows, vector, COUNT, PAIRS, CHUNK), DTYPE))
    for r in tl.static_range(GROUP):
        first, second = firsts[r], seconds[r]
        cos_first, cos_second = turns[4 * r].to(tl.float32), turns[4 * r + 1].to(tl.float32)
        sin_first, sin_second = turns[4 * r + 2].to(tl.float32), turns[4 * r + 3].to(tl.float32)
        turned_first = rounded(first * cos_first, DTYPE) - rounded(second * sin_first, DTYPE)
        turned_second = rounded(second * cos_second, DTYPE) + rounded(first * sin_second, DTYPE)
        slot, _ = place(position + r, state, RING)
        cached = head.to(tl.int64) * capacity * HEAD_DIM + slot * HEAD_DIM + pair
        asked = q + ((ahead + r) * HEADS + head) * HEAD_DIM + pair
        if part == 0:
            tl.store(asked, turned_first.to(DTYPE), mask=live)
            tl.store(asked + HALF, turned_second.to(DTYPE), mask=live)
        elif part == 1:
            tl.store(keys + cached, turned_first.to(DTYPE), mask=live)
            tl.store(keys + cached + HALF, turned_second.to(DTYPE), mask=live)
        else:
            tl.store(values + cached, first.to(DTYPE), mask=live)
            tl.store(values + cached + HALF, second.to(DTYPE), mask=live)


@triton.jit
def _output_rows(
    mixed, weight, x, out_width,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    row, ahead = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * GROUP
    live = row < out_width
    rows = load_rows(weight + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
    await_previous(PDL)
    outs, residuals = (), ()
    for r in tl.static_range(GROUP):
        residuals = extended(residuals, tl.load(x + (ahead + r) * out_width + row, mask=live, other=0.0))
    for r in tl.static_range(GROUP):
        vector = load_row(mixed + (ahead + r) * WIDTH, WIDTH, ROWS, CHUNK, "")
        outs = extended(outs, rounded(dot_row(rows, vector, COUNT, ROWS, CHUNK), DTYPE))
    for r in tl.static_range(GROUP):
        total = residuals[r].to(tl.float32) + outs[r]
        tl.store(x + (ahead + r) * out_width + row, total.to(DTYPE), mask=live)


@triton.jit
def _join_rows(
    partial, log_sums, mixed, state,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, AT_ONCE: tl.constexpr,
    CHUNK: tl.constexpr, RING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = HEADS * HEAD_DIM
    first, row = tl.program_id(0) * CHUNK, tl.program_id(1)
    _, held = place(tl.load(state + AT_POSITION, cache_modifier=".cg") + row, state, RING)
    last = filled_parts(held, SPLITS, AT_ONCE)
    await_previous(PDL)
    sums, parts = load_parts(
        (), (), partial + row * (SPLITS * WIDTH), log_sums + row * (SPLITS * HEADS), first, last,
        HEADS, HEAD_DIM, SPLITS, CHUNK,
    )  # fmt: skip
    cols = first + tl.arange(0, CHUNK)
    out = merged(sums, parts, last, 0, SPLITS, CHUNK)
    tl.store(mixed + row * WIDTH + cols, out.to(mixed.dtype.element_ty), mask=cols < WIDTH)


def norm_rows(x: Tensor, gain: Tensor, y: Tensor, eps: float, launch: Launch) -> None:
    """Write `y` (K, C), the normed `x` (K, C) with `gain` (C,).

    `launch.warps` must be that of the one-row kernels which norm for themselves. Raises ValueError when these
    do not fit each other.
    """
    rows, width = x.shape
    expect_all(x.dtype, x.device, x=(x, (rows, width)), gain=(gain, (width,)), y=(y, (rows, width)))
    _norm_rows[(rows,)](x, gain, y, eps, WIDTH=width, CHUNK=chunk_width(width), **launch.options())


def qkv_rows(
    y: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    turns: tuple[Tensor, Tensor],
    state: Tensor,
    q: Tensor,
    cache: tuple[Tensor, Tensor],
    launch: Launch,
    ring: int = 0,
) -> None:
    """Write the turned `q` (K, h, D) and rows p to p + K - 1 of the cache, keys and values (h, P, D) each.

    `y` (K, C) normed; q, k and v `weights` (h D, C); `turns` cosines and sines (T, D); `state` (SIZE,) int32;
    `ring` places behind the prompt are taken in turn. Raises ValueError when these do not fit each other.
    """
    (keys, values), (cos, sin), (rows, width) = cache, turns, y.shape
    heads, capacity, head_dim = keys.shape
    q_weight, k_weight, v_weight = weights
    if head_dim % 2:
        raise ValueError(f"head dim {head_dim} is odd: rotary positions turn pairs")
    matrix = (heads * head_dim, width)
    expect_all(
        y.dtype, y.device, y=(y, (rows, width)),
        q_weight=(q_weight, matrix), k_weight=(k_weight, matrix), v_weight=(v_weight, matrix),
        cos=(cos, (len(cos), head_dim)), sin=(sin, (len(cos), head_dim)), q=(q, (rows, heads, head_dim)),
        keys=(keys, (heads, capacity, head_dim)), values=(values, (heads, capacity, head_dim)),
    )  # fmt: skip
    expect("state", state, (SIZE,), torch.int32, y.device)
    pairs = min(launch.rows, triton.next_power_of_2(head_dim // 2))
    group = rows_at_once(rows)
    _qkv_rows[(triton.cdiv(head_dim // 2, pairs), heads, 3 * rows // group)](
        y, q_weight, k_weight, v_weight, cos, sin, state, q, keys, values, capacity,
        GROUP=group, HEADS=heads, WIDTH=width, HEAD_DIM=head_dim, PAIRS=pairs, CHUNK=chunk_width(width),
        RING=ring, **launch.options(),
    )  # fmt: skip


def join_rows(
    partial: Tensor,
    log_sums: Tensor,
    mixed: Tensor,
    state: Tensor,
    at_once: int,
    launch: Launch,
    ring: int = 0,
) -> None:
    """Merge attention's splits, `partial` (K, S, h, D) and `log_sums` (K, S, h), into `mixed` (K, h D).

    As `attention_output` does for one row when attention reads `at_once` positions at once of a cache with
    that `ring`. Raises ValueError when these do not fit each other.
    """
    rows, splits, heads, head_dim = partial.shape
    expect_all(mixed.dtype, mixed.device, mixed=(mixed, (rows, heads * head_dim)))
    expect("partial", partial, (rows, splits, heads, head_dim), torch.float32, mixed.device)
    expect("log_sums", log_sums, (rows, splits, heads), torch.float32, mixed.device)
    expect("state", state, (SIZE,), torch.int32, mixed.device)
    chunk = chunk_width(heads * head_dim)
    _join_rows[(triton.cdiv(heads * head_dim, chunk), rows)](
        partial, log_sums, mixed, state,
        HEADS=heads, HEAD_DIM=head_dim, SPLITS=splits, AT_ONCE=at_once, CHUNK=chunk, RING=ring,
        **launch.options(),
    )  # fmt: skip


def output_rows(mixed: Tensor, weight: Tensor, x: Tensor, launch: Launch) -> None:
    """Add attention's output product to `x` (K, C) in place: `mixed` (K, h D), `weight` (C, h D).

    Raises ValueError when these do not fit each other.
    """
    (rows, width), (out, _) = mixed.shape, weight.shape
    expect_all(
        x.dtype, x.device, x=(x, (rows, out)), mixed=(mixed, (rows, width)), weight=(weight, (out, width))
    )
    group = rows_at_once(rows)
    _output_rows[(triton.cdiv(out, launch.rows), rows // group)](
        mixed, weight, x, out,
        GROUP=group, WIDTH=width, ROWS=launch.rows, CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Norm, query/key/value products, rotary positions, and the cache's new row.

Letters: C hidden size, h heads, D head dim, P positions the cache holds, T positions of the tables.

A program makes `rows` pairs (d, d + D/2) of one head of q, k or v, so that it can rotate them itself.
Moves 3 h D C weights and reads x of C.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, load_rows, load_vector, product_reference, rounded
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference
from dsocr_core.kernels.state import AT_POSITION, POSITION, SIZE, place


@triton.jit
def _qkv_rotary(
    x, gain, q_weight, k_weight, v_weight, cos, sin, state, q, keys, values, eps, capacity,
    WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr, PAIRS: tl.constexpr, CHUNK: tl.constexpr, RING: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    HALF: tl.constexpr = HEAD_DIM // 2
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    head, part = tl.program_id(1), tl.program_id(2)
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    live = pair < HALF
    weight = tl.where(part == 0, q_weight, tl.where(part == 1, k_weight, v_weight))
    rows = weight + (head * HEAD_DIM + pair).to(tl.int64) * WIDTH
    first_rows = load_rows(rows, live, WIDTH, CHUNK)
    second_rows = load_rows(rows + HALF * WIDTH, live, WIDTH, CHUNK)
    gains = load_vector(gain, WIDTH, CHUNK)
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")
    slot, _ = place(position, state, RING)
    entry = position * HEAD_DIM + pair
    cos_first = tl.load(cos + entry, mask=live).to(tl.float32)
    cos_second = tl.load(cos + entry + HALF, mask=live).to(tl.float32)
    sin_first = tl.load(sin + entry, mask=live).to(tl.float32)
    sin_second = tl.load(sin + entry + HALF, mask=live).to(tl.float32)

    await_previous(PDL)
    y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    first = rounded(dot_rows(first_rows, y, COUNT, PAIRS, CHUNK), DTYPE)
    second = rounded(dot_rows(second_rows, y, COUNT, PAIRS, CHUNK), DTYPE)
    rotated_first = rounded(first * cos_first, DTYPE) - rounded(second * sin_first, DTYPE)
    rotated_second = rounded(second * cos_second, DTYPE) + rounded(first * sin_second, DTYPE)
    cached = head.to(tl.int64) * capacity * HEAD_DIM + slot * HEAD_DIM + pair
    if part == 0:
        tl.store(q + head * HEAD_DIM + pair, rotated_first.to(DTYPE), mask=live)
        tl.store(q + head * HEAD_DIM + pair + HALF, rotated_second.to(DTYPE), mask=live)
    elif part == 1:
        tl.store(keys + cached, rotated_first.to(DTYPE), mask=live)
        tl.store(keys + cached + HALF, rotated_second.to(DTYPE), mask=live)
    else:
        tl.store(values + cached, first.to(DTYPE), mask=live)
        tl.store(values + cached + HALF, second.to(DTYPE), mask=live)


def qkv_rotary(
    x: Tensor,
    gain: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    state: Tensor,
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    eps: float,
    launch: Launch,
    ring: int = 0,
) -> None:
    """Write the rotated `q` (h, D) and the current position's row of `keys` and `values` (h, P, D).

    `x`, `gain` (C,); weights (h D, C); `cos`, `sin` (T, D); `state` (SIZE,) int32; `ring` slots behind the
    prompt are taken in turn.
    """
    heads, capacity, head_dim = keys.shape
    width, device = x.shape[0], x.device
    if head_dim % 2:
        raise ValueError(f"head dim {head_dim} is odd: rotary positions rotate pairs")
    matrix, table = (heads * head_dim, width), (cos.shape[0], head_dim)
    expect_all(
        x.dtype, device, x=(x, (width,)), gain=(gain, (width,)),
        q_weight=(q_weight, matrix), k_weight=(k_weight, matrix), v_weight=(v_weight, matrix),
        cos=(cos, table), sin=(sin, table), q=(q, (heads, head_dim)),
        keys=(keys, (heads, capacity, head_dim)), values=(values, (heads, capacity, head_dim)),
    )  # fmt: skip
    expect("state", state, (SIZE,), torch.int32, device)
    pairs = min(launch.rows, triton.next_power_of_2(head_dim // 2))
    _qkv_rotary[(triton.cdiv(head_dim // 2, pairs), heads, 3)](
        x, gain, q_weight, k_weight, v_weight, cos, sin, state, q, keys, values, eps, capacity,
        WIDTH=width, HEAD_DIM=head_dim, PAIRS=pairs, CHUNK=chunk_width(width), RING=ring,
        **launch.options(),
    )  # fmt: skip


def qkv_rotary_reference(
    x: Tensor,
    gain: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    state: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Reference in plain torch. Returns (q, key, value) of the current position, each (h, D)."""
    y, position = rms_norm_reference(x, gain, eps), int(state[POSITION])
    heads = q_weight.shape[0] // cos.shape[1]
    q, k, v = (product_reference(w, y).view(heads, -1) for w in (q_weight, k_weight, v_weight))  # (h, D)

    def rotate(z: Tensor) -> Tensor:
        first, second = z.chunk(2, dim=-1)
        return z * cos[position] + torch.cat([-second, first], dim=-1) * sin[position]

    return rotate(q), rotate(k), v

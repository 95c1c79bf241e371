# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Bounds of all logits of K rows from the head in 8 bits, read once (`decode.head_bounds`).

Letters: K rows, C hidden size, V vocabulary, M programs. The products are sums of integers, which any order
leaves exact, so they run on the matrix units: 2 K columns, two planes of each row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.head_bounds import RoundedHead, bounds_around
from dsocr_core.kernels.launch import Launch, await_previous, expect, row_blocks
from dsocr_core.kernels.state import AT_POSITION, SIZE

LEAST_COLUMNS = 16
"""The matrix units' narrowest product."""

COLUMNS_AT_ONCE = 256


@triton.jit
def _bound_all_rows(
    rows, scale, reach, planes, sizes, banned_at, state, lower, upper, vocabulary,
    K: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PLANES: tl.constexpr,
    DTYPE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    ALL: tl.constexpr = PLANES // 2
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < vocabulary
    plane, cols = tl.arange(0, PLANES), tl.arange(0, CHUNK)
    each = tl.arange(0, ALL)
    unit = tl.load(scale + row, mask=live, other=0.0)
    reached = tl.load(reach + row, mask=live, other=0.0)
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")
    await_previous(PDL)
    total = tl.zeros([ROWS, PLANES], tl.int32)
    for first in range(0, WIDTH, CHUNK):
        inside = first + cols < WIDTH
        at = row.to(tl.int64)[:, None] * WIDTH + first + cols[None, :]
        tile = tl.load(rows + at, mask=live[:, None] & inside[None, :], other=0)
        plane_at = plane[:, None] * WIDTH + first + cols[None, :]
        vectors = tl.load(planes + plane_at, mask=(plane < 2 * K)[:, None] & inside[None, :], other=0)
        total = tl.dot(tile, tl.trans(vectors), total, out_dtype=tl.int32)
    high, low = tl.split(tl.reshape(total, [ROWS, ALL, 2]))
    known = each < K
    vector_unit = tl.load(sizes + 2 * each, mask=known, other=0.0, cache_modifier=".cg")
    length = tl.load(sizes + 2 * each + 1, mask=known, other=0.0, cache_modifier=".cg")
    middle = (high.to(tl.float32) * 256.0 + low.to(tl.float32)) * vector_unit[None, :] * unit[:, None]
    slack = reached[:, None] * length[None, :]
    stored = each.to(tl.int64)[None, :] * vocabulary + row[:, None]
    counts = known[None, :] & live[:, None]
    banned = tl.load(banned_at + stored, mask=counts, other=0, cache_modifier=".cg")
    allowed = counts & (banned != position + each[None, :])
    low_bound, high_bound = bounds_around(middle, slack, allowed, WIDTH, DTYPE)
    tl.store(upper + stored, high_bound, mask=counts)
    tl.store(lower + each * tl.num_programs(0) + tl.program_id(0), tl.max(low_bound, axis=0), mask=known)


def bound_all_rows(
    head: RoundedHead,
    planes: Tensor,
    sizes: Tensor,
    banned_at: Tensor,
    state: Tensor,
    bounds: tuple[Tensor, Tensor],
    dtype: torch.dtype,
    launch: Launch,
) -> None:
    """Write every logit's upper bound and each program's highest lower bound, for each of K rows.

    `planes` (K, 2, C) int8 and `sizes` (K, 2) float32 as `split_vector` writes them, `banned_at` (K, V) int32
    with stamp p + r in row r, `state` (SIZE,) int32, `bounds` lower (K, M) and upper (K, V) float32; `dtype`
    is the logits'. Raises ValueError when these do not fit each other.
    """
    (vocabulary, width), rows, device = head.rows.shape, planes.shape[0], head.rows.device
    lower, upper = bounds
    programs = row_blocks(vocabulary, launch)
    expect("planes", planes, (rows, 2, width), torch.int8, device)
    expect("sizes", sizes, (rows, 2), torch.float32, device)
    expect("banned_at", banned_at, (rows, vocabulary), torch.int32, device)
    expect("state", state, (SIZE,), torch.int32, device)
    expect("lower", lower, (rows, programs), torch.float32, device)
    expect("upper", upper, (rows, vocabulary), torch.float32, device)
    _bound_all_rows[(programs,)](
        head.rows, head.scale, head.reach, planes, sizes, banned_at, state, lower, upper, vocabulary,
        K=rows, WIDTH=width, ROWS=launch.rows,
        CHUNK=min(COLUMNS_AT_ONCE, triton.next_power_of_2(width)),
        PLANES=max(LEAST_COLUMNS, triton.next_power_of_2(2 * rows)),
        DTYPE=tl.bfloat16 if dtype == torch.bfloat16 else tl.float32, **launch.options(),
    )  # fmt: skip

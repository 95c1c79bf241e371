# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The splits of attention merged, the output product, and the residual sum.

Letters: C hidden size, h heads, D head dim, S splits, A of them with positions.

Every program merges all splits itself, which is 4 A h D bytes from the L2 cache; a program that merged
them for the others would be one more launch. Moves C h D weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.split_attention import join_parts_reference, positions_a_part
from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, extended, load_rows, product_reference, rounded
from dsocr_core.kernels.state import AT_POSITION, SIZE, place


@triton.jit
def _attention_output(
    partial, log_sums, weight, x, state, out_width,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, AT_ONCE: tl.constexpr,
    ROWS: tl.constexpr, CHUNK: tl.constexpr, RING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    WIDTH: tl.constexpr = HEADS * HEAD_DIM
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < out_width
    rows = load_rows(weight + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")
    _, filled = place(position, state, RING)
    # Number of the last split that has positions.
    last = tl.maximum(tl.cdiv(filled, positions_a_part(filled, SPLITS, AT_ONCE)), 1) - 1

    await_previous(PDL)
    # All loads come before the first sum: one L2 round trip, not one a chunk.
    residual = tl.load(x + row, mask=live, other=0.0).to(tl.float32)
    sums, parts = (), ()
    for c in tl.static_range(COUNT):
        cols = c * CHUNK + tl.arange(0, CHUNK)
        inside = cols < WIDTH
        for s in tl.static_range(SPLITS):
            # An empty split loads the last one again, which is in flight already.
            part = tl.minimum(s, last)
            sum_at = log_sums + part * HEADS + cols // HEAD_DIM
            sums = extended(sums, tl.load(sum_at, mask=inside, other=0.0))
            parts = extended(parts, tl.load(partial + part * WIDTH + cols, mask=inside, other=0.0))
    chunks = ()
    for c in tl.static_range(COUNT):
        top = tl.full([CHUNK], float("-inf"), tl.float32)
        for s in tl.static_range(SPLITS):
            top = tl.maximum(top, sums[c * SPLITS + s])
        total, mixed = tl.zeros([CHUNK], tl.float32), tl.zeros([CHUNK], tl.float32)
        for s in tl.static_range(SPLITS):
            share = tl.where(s <= last, tl.exp2(sums[c * SPLITS + s] - top), 0.0)
            total += share
            mixed += share * parts[c * SPLITS + s]
        chunks = extended(chunks, rounded(mixed / total, DTYPE))
    out = rounded(dot_rows(rows, chunks, COUNT, ROWS, CHUNK), DTYPE)
    tl.store(x + row, (residual + out).to(DTYPE), mask=live)


def attention_output(
    partial: Tensor,
    log_sums: Tensor,
    weight: Tensor,
    x: Tensor,
    state: Tensor,
    at_once: int,
    launch: Launch,
    ring: int = 0,
) -> None:
    """Add attention's output product to `x` (C,) in place.

    `partial` (S, h, D) and `log_sums` (S, h) float32 as `split_attention` leaves them when it reads `at_once`
    positions at once of a cache with that `ring`, `weight` (C, h D), `state` (SIZE,) int32.
    """
    splits, heads, head_dim = partial.shape
    width, device = x.shape[0], x.device
    expect_all(x.dtype, device, x=(x, (width,)), weight=(weight, (width, heads * head_dim)))
    expect("partial", partial, (splits, heads, head_dim), torch.float32, device)
    expect("log_sums", log_sums, (splits, heads), torch.float32, device)
    expect("state", state, (SIZE,), torch.int32, device)
    _attention_output[(triton.cdiv(width, launch.rows),)](
        partial, log_sums, weight, x, state, width,
        HEADS=heads, HEAD_DIM=head_dim, SPLITS=splits, AT_ONCE=at_once, ROWS=launch.rows,
        CHUNK=chunk_width(heads * head_dim), RING=ring, **launch.options(),
    )  # fmt: skip


def attention_output_reference(partial: Tensor, log_sums: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """Reference in plain torch. Returns the new x, (C,)."""
    mixed = join_parts_reference(partial, log_sums).to(x.dtype).flatten()  # (h D,)
    return x + product_reference(weight, mixed)

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Gate and up products of the experts the router chose, no tokens sorted.

Letters: C hidden size, E experts, k experts a token, I width of an expert.

A block is `rows` outputs of one chosen expert, and a program makes one or several of them. Where the
choice ran just before, norm and gains are ready before the wait and only the expert's id has to be
awaited. Where it ran earlier the ids are `settled`: then the weights load before the wait, and the norm
is made in their shadow. Moves 2 k I C weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, gated_reference, load_rows, load_vector, rounded, silu
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def load_block(
    ids, gate, up, block,
    WIDTH: tl.constexpr, INNER: tl.constexpr, CHOSEN: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Tiles of one block's gate and up rows."""
    PER_EXPERT: tl.constexpr = (INNER + ROWS - 1) // ROWS
    slot = block // PER_EXPERT
    row = (block % PER_EXPERT) * ROWS + tl.arange(0, ROWS)
    live = (row < INNER) & (slot < CHOSEN)
    expert = tl.load(ids + slot, mask=slot < CHOSEN, other=0, cache_modifier=".cg")
    offset = (expert.to(tl.int64) * INNER + row) * WIDTH
    return load_rows(gate + offset, live, WIDTH, CHUNK), load_rows(up + offset, live, WIDTH, CHUNK)


@triton.jit
def store_block(
    gated, tiles, y, block,
    INNER: tl.constexpr, CHOSEN: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, COUNT: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """The block's outputs from its tiles and the normed vector."""
    PER_EXPERT: tl.constexpr = (INNER + ROWS - 1) // ROWS
    slot = block // PER_EXPERT
    row = (block % PER_EXPERT) * ROWS + tl.arange(0, ROWS)
    first = rounded(dot_rows(tiles[0], y, COUNT, ROWS, CHUNK), DTYPE)
    second = rounded(dot_rows(tiles[1], y, COUNT, ROWS, CHUNK), DTYPE)
    out = (rounded(silu(first), DTYPE) * second).to(DTYPE)
    tl.store(gated + slot * INNER + row, out, mask=(row < INNER) & (slot < CHOSEN))


@triton.jit
def _routed_gate_up(
    x, gain, ids, gate, up, gated, eps,
    WIDTH: tl.constexpr, INNER: tl.constexpr, CHOSEN: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
    LOOPS: tl.constexpr, SETTLED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    block = tl.program_id(0)
    # The attention block wrote x, three kernels ago or more: it is complete.
    if SETTLED:
        tiles = load_block(ids, gate, up, block, WIDTH, INNER, CHOSEN, ROWS, CHUNK)
        await_previous(PDL)
        y = normed(load_vector(x, WIDTH, CHUNK), load_vector(gain, WIDTH, CHUNK), eps, WIDTH, CHUNK, DTYPE)
    else:
        y = normed(load_vector(x, WIDTH, CHUNK), load_vector(gain, WIDTH, CHUNK), eps, WIDTH, CHUNK, DTYPE)
        await_previous(PDL)
        tiles = load_block(ids, gate, up, block, WIDTH, INNER, CHOSEN, ROWS, CHUNK)
    for loop in tl.static_range(LOOPS):
        following = tiles
        if loop + 1 < LOOPS:
            # Under way before this block's sums are made: the memory never rests between two blocks.
            following = load_block(
                ids, gate, up, block + tl.num_programs(0), WIDTH, INNER, CHOSEN, ROWS, CHUNK
            )
        store_block(gated, tiles, y, block, INNER, CHOSEN, ROWS, CHUNK, COUNT, DTYPE)
        tiles = following
        block += tl.num_programs(0)


def routed_gate_up(
    x: Tensor,
    gain: Tensor,
    ids: Tensor,
    gate: Tensor,
    up: Tensor,
    gated: Tensor,
    eps: float,
    launch: Launch,
    settled: bool = False,
) -> None:
    """Write `gated` (k, I), one row a chosen expert.

    `x`, `gain` (C,), `ids` (k,) int32 below E as `route` leaves them, `gate` and `up` (E, I, C).
    `settled`: the ids are complete when this kernel starts (`launch.unready`). Raises ValueError when
    these do not fit each other.
    """
    experts, inner, width = gate.shape
    chosen, device = gated.shape[0], x.device
    expect_all(
        x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), gate=(gate, (experts, inner, width)),
        up=(up, (experts, inner, width)), gated=(gated, (chosen, inner)),
    )  # fmt: skip
    expect("ids", ids, (chosen,), torch.int32, device)
    blocks = chosen * triton.cdiv(inner, launch.rows)
    _routed_gate_up[(min(blocks, launch.programs or blocks),)](
        x, gain, ids, gate, up, gated, eps,
        WIDTH=width, INNER=inner, CHOSEN=chosen, ROWS=launch.rows, CHUNK=chunk_width(width),
        LOOPS=launch.loops(blocks), SETTLED=settled, **launch.options(),
    )  # fmt: skip


def routed_gate_up_reference(
    x: Tensor, gain: Tensor, ids: Tensor, gate: Tensor, up: Tensor, eps: float
) -> Tensor:
    """`gated`, (k, I)."""
    y = rms_norm_reference(x, gain, eps)
    return torch.stack([gated_reference(gate[e], up[e], y) for e in ids.tolist()])

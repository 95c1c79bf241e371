# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Norm and gate/up of the shared and of the chosen experts in one launch, after the choice.

Letters: C hidden size, E experts, k experts a token, I width of an expert, S width of the shared experts.

The shared experts' programs come first. They do not depend on the choice, so they do not wait: they run
while it is made, and free their multiprocessors for the chosen experts' programs, which begin with their ids.
Each of those computes one block or several in sequence, with the next block's weights in flight.
Moves 2 (S + k I) C weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, gated_reference, load_rows, load_vector, rounded, silu
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def _load_block(
    ids, gate, up, block,
    WIDTH: tl.constexpr, INNER: tl.constexpr, CHOSEN: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Tiles of one block's gate and up rows: `ROWS` outputs of one chosen expert."""
    PER_EXPERT: tl.constexpr = (INNER + ROWS - 1) // ROWS
    slot = block // PER_EXPERT
    row = (block % PER_EXPERT) * ROWS + tl.arange(0, ROWS)
    live = (row < INNER) & (slot < CHOSEN)
    expert = tl.load(ids + slot, mask=slot < CHOSEN, other=0, cache_modifier=".cg")
    offset = (expert.to(tl.int64) * INNER + row) * WIDTH
    return load_rows(gate + offset, live, WIDTH, CHUNK), load_rows(up + offset, live, WIDTH, CHUNK)


@triton.jit
def _store_block(
    routed, tiles, y, block,
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
    tl.store(routed + slot * INNER + row, out, mask=(row < INNER) & (slot < CHOSEN))


@triton.jit
def _gate_up(
    x, gain, ids, shared_gate, shared_up, routed_gate, routed_up, shared, routed, eps,
    WIDTH: tl.constexpr, SHARED: tl.constexpr, INNER: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, CHUNK: tl.constexpr, LOOPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    SHARED_PROGRAMS: tl.constexpr = (SHARED + ROWS - 1) // ROWS
    program = tl.program_id(0)
    if program < SHARED_PROGRAMS:
        row = program * ROWS + tl.arange(0, ROWS)
        live = row < SHARED
        gate_rows = load_rows(shared_gate + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
        up_rows = load_rows(shared_up + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
        y = normed(load_vector(x, WIDTH, CHUNK), load_vector(gain, WIDTH, CHUNK), eps, WIDTH, CHUNK, DTYPE)
        first = rounded(dot_rows(gate_rows, y, COUNT, ROWS, CHUNK), DTYPE)
        second = rounded(dot_rows(up_rows, y, COUNT, ROWS, CHUNK), DTYPE)
        # No wait: the last reader of these outputs ran a layer ago and has ended.
        tl.store(shared + row, (rounded(silu(first), DTYPE) * second).to(DTYPE), mask=live)
    else:
        block = program - SHARED_PROGRAMS
        stride = tl.num_programs(0) - SHARED_PROGRAMS
        await_previous(PDL)
        tiles = _load_block(ids, routed_gate, routed_up, block, WIDTH, INNER, CHOSEN, ROWS, CHUNK)
        y = normed(load_vector(x, WIDTH, CHUNK), load_vector(gain, WIDTH, CHUNK), eps, WIDTH, CHUNK, DTYPE)
        for loop in tl.static_range(LOOPS):
            following = tiles
            if loop + 1 < LOOPS:
                # Loaded before this block's sums, so that the memory is never idle.
                following = _load_block(
                    ids, routed_gate, routed_up, block + stride, WIDTH, INNER, CHOSEN, ROWS, CHUNK
                )
            _store_block(routed, tiles, y, block, INNER, CHOSEN, ROWS, CHUNK, COUNT, DTYPE)
            tiles = following
            block += stride


def gate_up(
    x: Tensor,
    gain: Tensor,
    ids: Tensor,
    shared_gate: Tensor,
    shared_up: Tensor,
    routed_gate: Tensor,
    routed_up: Tensor,
    shared: Tensor,
    routed: Tensor,
    eps: float,
    launch: Launch,
) -> None:
    """Write `shared` (S,) and `routed` (k, I), one row a chosen expert.

    `x`, `gain` (C,), `ids` (k,) int32 below E as `route` leaves them; `shared_gate`, `shared_up` (S, C),
    `routed_gate`, `routed_up` (E, I, C). x and who last read `shared` must be complete when this kernel
    starts (`launch.unready`). `launch.programs` are those of the chosen experts.
    """
    (experts, inner, width), (part,), chosen = routed_gate.shape, shared.shape, routed.shape[0]
    expect_all(
        x.dtype, x.device, x=(x, (width,)), gain=(gain, (width,)), shared=(shared, (part,)),
        shared_gate=(shared_gate, (part, width)), shared_up=(shared_up, (part, width)),
        routed_gate=(routed_gate, (experts, inner, width)), routed_up=(routed_up, (experts, inner, width)),
        routed=(routed, (chosen, inner)),
    )  # fmt: skip
    expect("ids", ids, (chosen,), torch.int32, x.device)
    blocks = chosen * triton.cdiv(inner, launch.rows)
    programs = min(blocks, launch.programs or blocks)
    _gate_up[(triton.cdiv(part, launch.rows) + programs,)](
        x, gain, ids, shared_gate, shared_up, routed_gate, routed_up, shared, routed, eps,
        WIDTH=width, SHARED=part, INNER=inner, CHOSEN=chosen, ROWS=launch.rows, CHUNK=chunk_width(width),
        LOOPS=triton.cdiv(blocks, programs), **launch.options(),
    )  # fmt: skip


def gate_up_reference(
    x: Tensor,
    gain: Tensor,
    ids: Tensor,
    shared_gate: Tensor,
    shared_up: Tensor,
    routed_gate: Tensor,
    routed_up: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Reference in plain torch. Returns (shared, routed)."""
    y = rms_norm_reference(x, gain, eps)
    routed = [gated_reference(routed_gate[e], routed_up[e], y) for e in ids.tolist()]
    return gated_reference(shared_gate, shared_up, y), torch.stack(routed)

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Gate and up products of the experts the router chose, no tokens sorted.

Letters: C hidden size, E experts, k experts a token, I width of an expert.

A program makes `rows` outputs of one chosen expert. Norm and gains are ready before the wait; only the
expert's id has to be awaited. Moves 2 k I C weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, gated_reference, load_rows, load_vector, rounded, silu
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def _routed_gate_up(
    x, gain, ids, gate, up, gated, eps,
    WIDTH: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    slot = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < INNER
    # The attention block wrote x, three kernels ago: it is complete.
    y = normed(load_vector(x, WIDTH, CHUNK), load_vector(gain, WIDTH, CHUNK), eps, WIDTH, CHUNK, DTYPE)

    await_previous(PDL)
    expert = tl.load(ids + slot)
    offset = (expert.to(tl.int64) * INNER + row) * WIDTH
    gate_rows = load_rows(gate + offset, live, WIDTH, CHUNK)
    up_rows = load_rows(up + offset, live, WIDTH, CHUNK)
    first = rounded(dot_rows(gate_rows, y, COUNT, ROWS, CHUNK), DTYPE)
    second = rounded(dot_rows(up_rows, y, COUNT, ROWS, CHUNK), DTYPE)
    out = (rounded(silu(first), DTYPE) * second).to(DTYPE)
    tl.store(gated + slot * INNER + row, out, mask=live)


def routed_gate_up(
    x: Tensor,
    gain: Tensor,
    ids: Tensor,
    gate: Tensor,
    up: Tensor,
    gated: Tensor,
    eps: float,
    launch: Launch,
) -> None:
    """Write `gated` (k, I), one row a chosen expert.

    `x`, `gain` (C,), `ids` (k,) int32 below E as `route` leaves them, `gate` and `up` (E, I, C). Raises
    ValueError when these do not fit each other.
    """
    experts, inner, width = gate.shape
    chosen, device = gated.shape[0], x.device
    expect_all(
        x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), gate=(gate, (experts, inner, width)),
        up=(up, (experts, inner, width)), gated=(gated, (chosen, inner)),
    )  # fmt: skip
    expect("ids", ids, (chosen,), torch.int32, device)
    _routed_gate_up[(triton.cdiv(inner, launch.rows), chosen)](
        x, gain, ids, gate, up, gated, eps,
        WIDTH=width, INNER=inner, ROWS=launch.rows, CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def routed_gate_up_reference(
    x: Tensor, gain: Tensor, ids: Tensor, gate: Tensor, up: Tensor, eps: float
) -> Tensor:
    """`gated`, (k, I)."""
    y = rms_norm_reference(x, gain, eps)
    return torch.stack([gated_reference(gate[e], up[e], y) for e in ids.tolist()])

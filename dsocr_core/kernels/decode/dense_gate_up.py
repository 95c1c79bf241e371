# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Norm and gate/up of a dense layer.

Letters: C hidden size, S width of the dense layer. Moves 2 S C weights.
"""

import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect_all
from dsocr_core.kernels.matvec import dot_rows, gated_reference, load_rows, load_vector, rounded, silu
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def _dense_gate_up(
    x, gain, gate, up, gated, eps, inner,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < inner
    gate_rows = load_rows(gate + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
    up_rows = load_rows(up + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
    gains = load_vector(gain, WIDTH, CHUNK)

    await_previous(PDL)
    y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    first = rounded(dot_rows(gate_rows, y, COUNT, ROWS, CHUNK), DTYPE)
    second = rounded(dot_rows(up_rows, y, COUNT, ROWS, CHUNK), DTYPE)
    tl.store(gated + row, (rounded(silu(first), DTYPE) * second).to(DTYPE), mask=live)


def dense_gate_up(
    x: Tensor, gain: Tensor, gate: Tensor, up: Tensor, gated: Tensor, eps: float, launch: Launch
) -> None:
    """Write `gated` (S,): SiLU of gate times up, of the normed x.

    `x`, `gain` (C,), `gate` and `up` (S, C).
    """
    width, inner = x.shape[0], gate.shape[0]
    expect_all(
        x.dtype, x.device, x=(x, (width,)), gain=(gain, (width,)), gate=(gate, (inner, width)),
        up=(up, (inner, width)), gated=(gated, (inner,)),
    )  # fmt: skip
    _dense_gate_up[(triton.cdiv(inner, launch.rows),)](
        x, gain, gate, up, gated, eps, inner,
        WIDTH=width, ROWS=launch.rows, CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def dense_gate_up_reference(x: Tensor, gain: Tensor, gate: Tensor, up: Tensor, eps: float) -> Tensor:
    """Reference in plain torch. Returns `gated`, (S,)."""
    return gated_reference(gate, up, rms_norm_reference(x, gain, eps))

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
from dsocr_core.kernels.router import chosen_expert, ranks, route_reference


@triton.jit
def _routed_gate_up(
    x, gain, logits, gate, up, gated, eps,
    WIDTH: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, INNER: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    slot = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = row < INNER
    # The attention block wrote x, two kernels ago: it is complete.
    y = normed(load_vector(x, WIDTH, CHUNK), load_vector(gain, WIDTH, CHUNK), eps, WIDTH, CHUNK, DTYPE)

    await_previous(PDL)
    expert = chosen_expert(ranks(logits, EXPERTS, EVERY) == slot, 0, EXPERTS, tl.arange(0, EVERY))
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
    logits: Tensor,
    gate: Tensor,
    up: Tensor,
    gated: Tensor,
    eps: float,
    launch: Launch,
) -> None:
    """Write `gated` (k, I), one row a chosen expert, the best first.

    `x`, `gain` (C,), `logits` (E,) float32, `gate` and `up` (E, I, C). Raises ValueError when these do not
    fit each other.
    """
    experts, inner, width = gate.shape
    chosen, device = gated.shape[0], x.device
    expect_all(
        x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), gate=(gate, (experts, inner, width)),
        up=(up, (experts, inner, width)), gated=(gated, (chosen, inner)),
    )  # fmt: skip
    expect("logits", logits, (experts,), torch.float32, device)
    if not 1 <= chosen <= experts:
        raise ValueError(f"{chosen} experts a token of {experts}")
    _routed_gate_up[(triton.cdiv(inner, launch.rows), chosen)](
        x, gain, logits, gate, up, gated, eps,
        WIDTH=width, EXPERTS=experts, EVERY=triton.next_power_of_2(experts), INNER=inner, ROWS=launch.rows,
        CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def routed_gate_up_reference(
    x: Tensor, gain: Tensor, logits: Tensor, gate: Tensor, up: Tensor, chosen: int, eps: float
) -> Tensor:
    """`gated`, (k, I)."""
    y = rms_norm_reference(x, gain, eps)
    ids, _ = route_reference(logits, chosen, 1.0)
    return torch.stack([gated_reference(gate[e], up[e], y) for e in ids.tolist()])

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Norm, router logits, and gate/up of what every token runs: the shared experts, or a dense layer.

Letters: C hidden size, E experts (0 in a dense layer), S width of the shared experts or the dense layer.

The router's rows are the first programs: what comes next waits for its logits, and the shared experts
need none of them, so their weights stream while the router's sums finish. Without a router, where the
choice of experts runs just before, x is `settled`, and the norm is ready before the wait as well. Moves
(E + 2 S) C weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import (
    dot_rows,
    gated_reference,
    load_rows,
    load_vector,
    product_reference,
    rounded,
    silu,
)
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def _shared_gate_up(
    x, gain, router, gate, up, logits, gated, eps, inner,
    WIDTH: tl.constexpr, EXPERTS: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
    SETTLED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    ROUTERS: tl.constexpr = (EXPERTS + 2 * ROWS - 1) // (2 * ROWS)
    program = tl.program_id(0)
    routes = program < ROUTERS
    lane = tl.arange(0, ROWS)
    expert = program * 2 * ROWS + lane
    row = (program - ROUTERS) * ROWS + lane
    # Two row tiles a program: gate and up, or twice as many of the router's.
    first_rows = tl.where(routes, router + expert * WIDTH, gate + row.to(tl.int64) * WIDTH)
    second_rows = tl.where(routes, router + (expert + ROWS) * WIDTH, up + row.to(tl.int64) * WIDTH)
    first_live = tl.where(routes, expert < EXPERTS, row < inner)
    second_live = tl.where(routes, expert + ROWS < EXPERTS, row < inner)
    first_tiles = load_rows(first_rows, first_live, WIDTH, CHUNK)
    second_tiles = load_rows(second_rows, second_live, WIDTH, CHUNK)
    gains = load_vector(gain, WIDTH, CHUNK)

    if SETTLED:
        y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
        await_previous(PDL)
    else:
        await_previous(PDL)
        y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    first = rounded(dot_rows(first_tiles, y, COUNT, ROWS, CHUNK), DTYPE)
    second = rounded(dot_rows(second_tiles, y, COUNT, ROWS, CHUNK), DTYPE)
    if routes:
        tl.store(logits + expert, first, mask=first_live)
        tl.store(logits + expert + ROWS, second, mask=second_live)
    else:
        tl.store(gated + row, (rounded(silu(first), DTYPE) * second).to(DTYPE), mask=first_live)


def shared_gate_up(
    x: Tensor,
    gain: Tensor,
    router: Tensor | None,
    gate: Tensor,
    up: Tensor,
    logits: Tensor | None,
    gated: Tensor,
    eps: float,
    launch: Launch,
    settled: bool = False,
) -> None:
    """Write the router's `logits` (E,) float32 and `gated` (S,).

    `x`, `gain` (C,), `router` (E, C), `gate` and `up` (S, C); a dense layer has neither router nor logits.
    `settled`: x is complete when this kernel starts, so that it need not be awaited (`launch.unready`).
    Raises ValueError when these do not fit each other.
    """
    width, inner, device = x.shape[0], gate.shape[0], x.device
    expect_all(
        x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), gate=(gate, (inner, width)),
        up=(up, (inner, width)), gated=(gated, (inner,)),
    )  # fmt: skip
    experts = 0
    if router is not None and logits is not None:
        experts = router.shape[0]
        expect("router", router, (experts, width), x.dtype, device)
        expect("logits", logits, (experts,), torch.float32, device)
    elif router is not None or logits is not None:
        raise ValueError("a router and its logits come together")
    programs = triton.cdiv(experts, 2 * launch.rows) + triton.cdiv(inner, launch.rows)
    _shared_gate_up[(programs,)](
        # A dense layer's kernel reads neither; any tensors do.
        x, gain, gate if router is None else router, gate, up, gated if logits is None else logits, gated,
        eps, inner,
        WIDTH=width, EXPERTS=experts, ROWS=launch.rows, CHUNK=chunk_width(width), SETTLED=settled,
        **launch.options(),
    )  # fmt: skip


def shared_gate_up_reference(
    x: Tensor, gain: Tensor, router: Tensor, gate: Tensor, up: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """(logits, gated)"""
    y = rms_norm_reference(x, gain, eps)
    return product_reference(router, y).to(torch.float32), gated_reference(gate, up, y)

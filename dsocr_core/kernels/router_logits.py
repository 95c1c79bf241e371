# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Norm and router logits as a launch of their own, so that the choice of experts runs as early as it can.

Letters: C hidden size, E experts.

It is little work, E C weights, and stands first in the MLP: all that the shared experts have to load then
comes while the choice is made.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, load_rows, load_vector, product_reference, rounded
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def _router_logits(
    x, gain, router, logits, eps,
    WIDTH: tl.constexpr, EXPERTS: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    expert = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = expert < EXPERTS
    rows = load_rows(router + expert * WIDTH, live, WIDTH, CHUNK)
    gains = load_vector(gain, WIDTH, CHUNK)

    await_previous(PDL)
    y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    tl.store(logits + expert, rounded(dot_rows(rows, y, COUNT, ROWS, CHUNK), DTYPE), mask=live)


def router_logits(
    x: Tensor, gain: Tensor, router: Tensor, logits: Tensor, eps: float, launch: Launch
) -> None:
    """Write the router's `logits` (E,) float32.

    `x`, `gain` (C,), `router` (E, C). Raises ValueError when these do not fit each other.
    """
    (experts, width), device = router.shape, x.device
    expect_all(x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), router=(router, (experts, width)))
    expect("logits", logits, (experts,), torch.float32, device)
    _router_logits[(triton.cdiv(experts, launch.rows),)](
        x, gain, router, logits, eps,
        WIDTH=width, EXPERTS=experts, ROWS=launch.rows, CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def router_logits_reference(x: Tensor, gain: Tensor, router: Tensor, eps: float) -> Tensor:
    """(E,) float32."""
    return product_reference(router, rms_norm_reference(x, gain, eps)).to(torch.float32)

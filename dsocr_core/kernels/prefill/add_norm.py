# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Residual sum and the norm after it in one launch, for many tokens: the end of every block of every tower.

Letters: T tokens, C width, k experts a token.

The sum and the norm are computed in float32; the sum is rounded once, and the norm is of the rounded sum,
as the eager engine's next layer would. A program is one token.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import await_previous, expect, expect_all, overlapping

WARPS = 4


@triton.jit
def _add_and_norm(
    x, added, routed, weights, gain, bias, y, eps,
    WIDTH: tl.constexpr, EVERY: tl.constexpr, CHOSEN: tl.constexpr, ADDED: tl.constexpr,
    CENTRED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    token = tl.program_id(0)
    column = tl.arange(0, EVERY)
    live = column < WIDTH
    at = token.to(tl.int64) * WIDTH + column
    value = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    if ADDED:
        value += tl.load(added + at, mask=live, other=0.0).to(tl.float32)
    for choice in tl.static_range(CHOSEN):
        slot = token * CHOSEN + choice
        part = tl.load(routed + slot.to(tl.int64) * WIDTH + column, mask=live, other=0.0).to(tl.float32)
        value += part * tl.load(weights + slot)
    if ADDED or CHOSEN:
        rounded = value.to(x.dtype.element_ty)
        tl.store(x + at, rounded, mask=live)
        value = rounded.to(tl.float32)
    if CENTRED:
        value = tl.where(live, value - tl.sum(value, axis=0) / WIDTH, 0.0)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / WIDTH + eps)
    out = value * scale * tl.load(gain + column, mask=live, other=0.0).to(tl.float32)
    if CENTRED:
        out += tl.load(bias + column, mask=live, other=0.0).to(tl.float32)
    tl.store(y + at, out.to(y.dtype.element_ty), mask=live)


def add_and_norm(
    x: Tensor,
    gain: Tensor,
    y: Tensor,
    eps: float,
    added: Tensor | None = None,
    routed: Tensor | None = None,
    weights: Tensor | None = None,
    bias: Tensor | None = None,
) -> None:
    """x += added + the weighted sum of `routed`, in place; then write y, the norm of x.

    `x`, `y`, `added` (T, C); `routed` (T, k, C) with `weights` (T, k) float32; `gain` (C,). Root-mean-square
    norm, or with a `bias` (C,) layer norm. `y` may be `added`. `x` and `y` may each be float32 where the rest
    is not.
    """
    (tokens, width), device, dtype = x.shape, x.device, gain.dtype
    for name, tensor in {"x": x, "y": y}.items():
        expect(
            name, tensor, (tokens, width), torch.float32 if tensor.dtype == torch.float32 else dtype, device
        )
    expect_all(dtype, device, gain=(gain, (width,)), bias=(gain if bias is None else bias, (width,)))
    if added is not None:
        expect("added", added, (tokens, width), dtype, device)
    if (routed is None) != (weights is None):
        raise ValueError("routed and weights come together")
    each = 0
    if routed is not None and weights is not None:
        each = routed.shape[1]
        expect("routed", routed, (tokens, each, width), dtype, device)
        expect("weights", weights, (tokens, each), torch.float32, device)
    _add_and_norm[(tokens,)](
        x, added, routed, weights, gain, bias, y, eps, WIDTH=width, EVERY=triton.next_power_of_2(width),
        CHOSEN=each, ADDED=added is not None, CENTRED=bias is not None, num_warps=WARPS,
        **overlapping(device),
    )  # fmt: skip


def add_and_norm_reference(x, gain, y, eps, added=None, routed=None, weights=None, bias=None):
    """Reference in plain torch."""
    wide = x.to(torch.float32)
    if added is not None:
        wide = wide + added.to(torch.float32)
    if routed is not None and weights is not None:
        wide = wide + (routed.to(torch.float32) * weights[..., None]).sum(dim=1)
    x.copy_(wide)
    wide, gains = x.to(torch.float32), gain.to(torch.float32)
    if bias is None:
        y.copy_(F.rms_norm(wide, gain.shape, gains, eps))
    else:
        y.copy_(F.layer_norm(wide, gain.shape, gains, bias.to(torch.float32), eps))

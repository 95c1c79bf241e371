# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Activations over many tokens, one pass over memory each, computed in float32 and rounded once.

Letters: T tokens, I inner width.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import await_previous, expect_all, overlapping
from dsocr_core.kernels.matvec import silu

BLOCK = 1024
QUICK_GELU_SLOPE = 1.702


@triton.jit
def _quick_gelu(x, count, slope, BLOCK: tl.constexpr, PDL: tl.constexpr):
    await_previous(PDL)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    out = value / (1.0 + tl.exp(-slope * value))
    tl.store(x + at, out.to(x.dtype.element_ty), mask=at < count)


@triton.jit
def _gated(gate_up, out, INNER: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    await_previous(PDL)
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = column < INNER
    gate = tl.load(gate_up + token * 2 * INNER + column, mask=live, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * 2 * INNER + INNER + column, mask=live, other=0.0).to(tl.float32)
    tl.store(out + token * INNER + column, (silu(gate) * up).to(out.dtype.element_ty), mask=live)


def quick_gelu(x: Tensor) -> None:
    """x times the sigmoid of 1.702 x, in place, of any shape. Raises ValueError unless contiguous."""
    expect_all(x.dtype, x.device, x=(x, tuple(x.shape)))
    if x.numel():
        _quick_gelu[(triton.cdiv(x.numel(), BLOCK),)](
            x, x.numel(), QUICK_GELU_SLOPE, BLOCK=BLOCK, **overlapping(x.device)
        )


def gated(gate_up: Tensor, out: Tensor) -> None:
    """Write `out` (T, I), SiLU of the first half of `gate_up` (T, 2 I) times the second."""
    tokens, inner = out.shape
    expect_all(out.dtype, out.device, gate_up=(gate_up, (tokens, 2 * inner)), out=(out, (tokens, inner)))
    if out.numel():
        _gated[(tokens, triton.cdiv(inner, BLOCK))](
            gate_up, out, INNER=inner, BLOCK=BLOCK, **overlapping(out.device)
        )


def quick_gelu_reference(x: Tensor) -> None:
    """Reference in plain torch."""
    wide = x.to(torch.float32)
    x.copy_(wide * torch.sigmoid(QUICK_GELU_SLOPE * wide))


def gated_reference(gate_up: Tensor, out: Tensor) -> None:
    """Reference in plain torch."""
    gate, up = gate_up.to(torch.float32).chunk(2, dim=-1)
    out.copy_(F.silu(gate) * up)

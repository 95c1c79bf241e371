# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Root-mean-square norm inside a kernel: every program that needs the normed vector computes it.

That is 2.5 KB from the L2 cache a program, instead of one more launch a norm.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.matvec import extended, rounded


@triton.jit
def normed(chunks, gains, eps, WIDTH: tl.constexpr, CHUNK: tl.constexpr, DTYPE: tl.constexpr):
    """The normed vector, rounded twice as the eager engine does. Tuples of float32 chunks (CHUNK,)."""
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    squares = tl.zeros([CHUNK], tl.float32)
    for c in tl.static_range(COUNT):
        squares += chunks[c] * chunks[c]
    scale = tl.rsqrt(tl.sum(squares, axis=0) / WIDTH + eps)
    out = ()
    for c in tl.static_range(COUNT):
        out = extended(out, rounded(rounded(chunks[c] * scale, DTYPE) * gains[c], DTYPE))
    return out


def rms_norm_reference(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """(C,) and (C,) -> (C,), in the order of `models.blocks.layers.RmsNorm`."""
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean() + eps)
    return gain * (wide * scale).to(x.dtype)

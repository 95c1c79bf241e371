# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Weights of later kernels on their way into the L2 cache while a kernel leaves the memory idle.

One instruction a program and tensor asks for a piece of it (`cp.async.bulk.prefetch.L2`, Hopper and
later): no registers, nothing to wait for, and nothing that a result depends on. It reaches further than
dependent launch, which has the weights of one kernel ahead under way, and those in registers.
"""

from collections.abc import Iterable

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def prefetch(tensors, SIZES: tl.constexpr, program, programs, THREADS: tl.constexpr):
    """This program's share of the first `SIZES` bytes of each tensor."""
    thread = tl.arange(0, THREADS)
    for number in tl.static_range(len(SIZES)):
        start = tensors[number].to(tl.pointer_type(tl.int8)).to(tl.int64)
        # In whole 16 bytes, as the instruction wants; by one thread, as threads would take turns at it.
        piece = tl.cdiv(SIZES[number], 16 * programs) * 16
        first = program * piece
        left = tl.maximum(tl.minimum(SIZES[number] - first, piece), 0)
        size = tl.where(thread == 0, left, 0)
        tl.inline_asm_elementwise(
            "{ .reg .pred some; setp.ne.u32 some, $2, 0; mov.u32 $0, 0; "
            "@some cp.async.bulk.prefetch.L2.global [$1], $2; }",
            "=r,l,r", [start + first + thread, size], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


def within(tensors: Iterable[Tensor], budget: int) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """The first `budget` bytes of these tensors in their order: which, and how much of each.

    A piece may have up to 1 MB, so with a hundred programs there is room for any layer.
    """
    taken: list[tuple[Tensor, int]] = []
    for tensor in tensors:
        size = min(tensor.numel() * tensor.element_size(), budget) // 16 * 16
        if size:
            taken.append((tensor, size))
            budget -= size
    return tuple(tensor for tensor, _ in taken), tuple(size for _, size in taken)

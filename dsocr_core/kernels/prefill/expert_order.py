# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Slots ordered by expert, on the device: what the grouped products read their rows by.

Letters: T tokens, k experts a token, E experts. A slot is one (token, choice) pair, numbered
token * k + choice.

A program is one expert. It counts the slots of lower experts, which is where its own begin, and then writes
its own in their order. One launch, no sort, no atomics: the order is the same every time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import await_previous, expect, overlapping

BLOCK, WARPS = 8192, 8
"""Slots that are read together, enough for a page of the published model; warps of a program."""


@triton.jit(do_not_specialize=["count"])
def _order_by_expert(
    chosen, slots, starts, count, EXPERTS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    await_previous(PDL)
    expert = tl.program_id(0)
    lower = tl.zeros([BLOCK], tl.int32)
    for first in range(0, count, BLOCK):
        slot = first + tl.arange(0, BLOCK)
        lower += (tl.load(chosen + slot, mask=slot < count, other=EXPERTS) < expert).to(tl.int32)
    begin = tl.sum(lower, axis=0)
    tl.store(starts + expert, begin)
    if expert == EXPERTS - 1:
        tl.store(starts + EXPERTS, count)
    for first in range(0, count, BLOCK):
        slot = first + tl.arange(0, BLOCK)
        mine = (tl.load(chosen + slot, mask=slot < count, other=EXPERTS) == expert).to(tl.int32)
        tl.store(slots + begin + tl.cumsum(mine, axis=0) - 1, slot, mask=mine > 0)
        begin += tl.sum(mine, axis=0)


def order_by_expert(chosen: Tensor, slots: Tensor, starts: Tensor) -> None:
    """Write `slots` (T k,) int32, ordered by expert and then as they come, and where each expert's begin.

    `chosen` (T, k) int32, every one below E; `starts` (E + 1,) int32, the last being T k.
    """
    tokens, each = chosen.shape
    expect("chosen", chosen, (tokens, each), torch.int32)
    expect("slots", slots, (tokens * each,), torch.int32, chosen.device)
    experts = starts.numel() - 1
    if experts < each or not tokens:
        raise ValueError(f"{tokens} tokens, {each} of {experts} experts a token: nothing to order")
    expect("starts", starts, (experts + 1,), torch.int32, chosen.device)
    _order_by_expert[(experts,)](
        chosen, slots, starts, tokens * each,
        EXPERTS=experts, BLOCK=BLOCK, num_warps=WARPS, **overlapping(chosen.device),
    )  # fmt: skip


def order_by_expert_reference(chosen: Tensor, slots: Tensor, starts: Tensor) -> None:
    """Reference in plain torch."""
    flat = chosen.flatten()
    slots.copy_(torch.argsort(flat, stable=True))
    before = torch.arange(starts.numel(), dtype=flat.dtype, device=flat.device)
    starts.copy_((flat[None, :] < before[:, None]).sum(dim=1))

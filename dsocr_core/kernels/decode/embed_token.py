# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""First kernel of a step: the current token's embedding, and which tokens the n-gram rule forbids next.

Letters: C hidden size, V vocabulary, T tokens the buffer holds, R rows of `matched`, p position of the
current token.

`matched[j]` counts how many tokens just before position j equal, one by one, the last tokens of the sequence.
With the new current token t[p]

    matched_p[j] = matched_{p-1}[j - 1] + 1 if t[j - 1] == t[p] else 0

and t[j] would repeat an n-gram of size n where matched_p[j] >= n - 1. Such tokens get the stamp p in
`banned_at`, so nothing needs clearing between steps. A rule with a window leaves out n-grams that begin
before it, a whitelist some tokens (`kernels/state.py`). The rows of `matched` are used in turn by position,
so that a repeated step reads and writes the same.

Moves C elements, and 12 bytes a position so far.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, expect_all
from dsocr_core.kernels.state import AT_NGRAM, AT_POSITION, SIZE, forbidden

NEVER = -1
"""Stamp of a token that no step has banned."""


@triton.jit
def _embed_token(
    tokens, state, table, x, matched, banned_at, capacity,
    RING: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    position = tl.load(state + AT_POSITION)
    current = tl.load(tokens + position)
    block = tl.program_id(0)
    if block == 0:
        cols = tl.arange(0, COLUMNS)
        row = tl.load(table + current.to(tl.int64) * WIDTH + cols, mask=cols < WIDTH)
        tl.store(x + cols, row, mask=cols < WIDTH)
    size = tl.load(state + AT_NGRAM)
    if (size > 0) & (block * BLOCK <= position):
        j = block * BLOCK + tl.arange(0, BLOCK)
        inside = j <= position
        follows = inside & (j > 0)
        before = tl.load(matched + ((position + RING - 1) % RING) * capacity + j - 1, mask=follows, other=0)
        same = tl.load(tokens + j - 1, mask=follows, other=-1) == current
        count = tl.where(follows & same, before + 1, 0)
        tl.store(matched + (position % RING) * capacity + j, count, mask=inside)
        repeats = inside & (count >= size - 1)
        token = tl.load(tokens + j, mask=repeats, other=0)
        tl.store(banned_at + token, position, mask=forbidden(repeats, j, token, position, size, state))


def embed_token(
    tokens: Tensor,
    state: Tensor,
    table: Tensor,
    x: Tensor,
    matched: Tensor,
    banned_at: Tensor,
    launch: Launch,
) -> None:
    """Write the current token's embedding to `x`, and stamp tokens that may not follow it.

    `tokens` (T,) int32, `state` (SIZE,) int32, `table` (V, C), `x` (C,), `matched` (R, T) int32, `banned_at`
    (V,) int32.
    """
    vocabulary, width = table.shape
    capacity, ring, device = tokens.shape[0], matched.shape[0], table.device
    expect_all(table.dtype, device, table=(table, (vocabulary, width)), x=(x, (width,)))
    expect_all(
        torch.int32, device, tokens=(tokens, (capacity,)), state=(state, (SIZE,)),
        matched=(matched, (ring, capacity)), banned_at=(banned_at, (vocabulary,)),
    )  # fmt: skip
    _embed_token[(triton.cdiv(capacity, launch.rows),)](
        tokens, state, table, x, matched, banned_at, capacity,
        RING=ring, WIDTH=width, COLUMNS=triton.next_power_of_2(width), BLOCK=launch.rows, **launch.options(),
    )  # fmt: skip


def matched_at_start(tokens: Tensor, size: int) -> Tensor:
    """Row of `matched` for a sequence whose last token is the current one: (N,) -> (N,) int32.

    Counts up to `size - 1`: the rule needs no more.
    """
    count = tokens.shape[0]
    matched = torch.zeros(count, dtype=torch.int32, device=tokens.device)
    unbroken = torch.ones(count, dtype=torch.bool, device=tokens.device)
    for back in range(1, min(size, count)):
        unbroken[:back] = False
        unbroken[back:] &= tokens[: count - back] == tokens[count - back]
        if not unbroken.any():  # of a prompt usually after a few
            break
        matched += unbroken
    return matched

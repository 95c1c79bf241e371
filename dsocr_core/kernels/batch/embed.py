# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Batch: embeddings of the current tokens, and of the tokens that drafts propose after them.

Letters: S slots, K rows a slot, R = K S, C hidden size, V vocabulary, T tokens a slot holds, D tokens of a
draft. A program is one row; row r S + s is r tokens ahead of slot s's current one.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.batch.drafts import AT_DRAFT_SIZE, AT_LENGTH, AT_SHIFT, DRAFT_SIZE, LENGTH, SHIFT
from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all, overlapping
from dsocr_core.kernels.state import SIZE, row_position, row_position_reference

Drafts = tuple[Tensor, Tensor]
"""Tokens (S, D) and states (S, DRAFT_SIZE) of every slot's draft, int32 (`batch.drafts`)."""


@triton.jit
def _embed_rows(
    tokens, states, draft, draft_states, table, x, capacity, drafted, slots,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, AHEAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    row = tl.program_id(0)
    slot, ahead = row % slots, row // slots
    position, live = row_position(states, slot, ahead)
    at = tokens + slot.to(tl.int64) * capacity + position
    if AHEAD:
        place = draft_states + slot * AT_DRAFT_SIZE
        number = position + tl.load(place + AT_SHIFT)
        there = (ahead > 0) & (number >= 0) & (number < tl.load(place + AT_LENGTH))
        # Without a proposal any token will do: it counts only if it is right.
        guess = tl.load(draft + slot.to(tl.int64) * drafted + number, mask=there, other=0)
        token = tl.where(ahead > 0, tl.maximum(guess, 0), tl.load(at, mask=ahead == 0, other=0))
        # A finished slot's tokens may be being copied to the host.
        tl.store(at, token, mask=live & (ahead > 0))
    else:
        token = tl.load(at)
    cols = tl.arange(0, COLUMNS)
    values = tl.load(table + token.to(tl.int64) * WIDTH + cols, mask=cols < WIDTH)
    tl.store(x + row.to(tl.int64) * WIDTH + cols, values, mask=cols < WIDTH)


def embed_rows(
    tokens: Tensor, states: Tensor, drafts: Drafts | None, table: Tensor, x: Tensor, launch: Launch
) -> None:
    """Write the rows' embeddings to `x` (R, C), and what is drafted behind each live slot's current token.

    `tokens` (S, T) int32, `states` (S, SIZE) int32, `table` (V, C); without `drafts` there is a row a slot.
    """
    (slots, capacity), (rows, width) = tokens.shape, x.shape
    if rows % slots or (drafts is None and rows > slots):
        raise ValueError(f"{rows} rows for {slots} slots")
    expect_all(table.dtype, x.device, table=(table, (table.shape[0], width)), x=(x, (rows, width)))
    expect("tokens", tokens, (slots, capacity), torch.int32, x.device)
    expect("states", states, (slots, SIZE), torch.int32, x.device)
    if drafts is not None:
        expect("draft", drafts[0], (slots, drafts[0].shape[-1]), torch.int32, x.device)
        expect("draft_states", drafts[1], (slots, DRAFT_SIZE), torch.int32, x.device)
    draft, draft_states = drafts or (tokens, states)  # only rows ahead read it
    _embed_rows[(rows,)](
        tokens, states, draft, draft_states, table, x, capacity, draft.shape[1], slots,
        WIDTH=width, COLUMNS=triton.next_power_of_2(width), AHEAD=rows > slots, num_warps=launch.warps,
        **overlapping(x.device),
    )  # fmt: skip


def embed_rows_reference(tokens, states, drafts, table, x, launch=None):
    """Reference in plain torch."""
    slots = tokens.shape[0]
    positions, live = row_position_reference(states, x.shape[0])
    for row, position in enumerate(positions.tolist()):
        slot, ahead = row % slots, row // slots
        token = int(tokens[slot, position])
        if ahead and drafts is not None:
            draft, place = drafts[0][slot], drafts[1][slot].tolist()
            number = position + place[SHIFT]
            token = max(int(draft[number]), 0) if 0 <= number < place[LENGTH] else 0
            if live[row]:
                tokens[slot, position] = token
        x[row] = table[token]

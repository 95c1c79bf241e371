# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""A batch: the n-gram rule on the logits, the argmax, and each sequence's next token.

Letters: S slots, K rows a slot, R = K S, V vocabulary, T tokens a slot holds, N parts of a row, M rows of
`matched`, p a slot's position. Row r S + s is r tokens ahead of slot s's current one.

The rule is that of `embed_token`: `matched[j]` counts how many tokens just before j equal the sequence's
last ones, and t[j] would repeat an n-gram where that reaches n - 1. Here the logits are in memory already,
so banned tokens become -inf there and no stamps are needed. The rows of `matched` are a ring by position, so
a repeated step reads and writes the same, and K rows are a chain: row r's counts come from row r - 1's,
shifted by one. A finished slot changes nothing.

Moves V logits a row twice (the product wrote them), and 12 bytes a position so far.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all, overlapping
from dsocr_core.kernels.state import (
    AT_DONE,
    AT_LAST,
    AT_NGRAM,
    AT_POSITION,
    AT_SIZE,
    DONE,
    LAST,
    NGRAM,
    POSITION,
    SIZE,
    forbidden,
    forbidden_reference,
    row_position,
    row_position_reference,
)

PART = 16384
"""Logits that one program of `best_of_parts` compares."""


@triton.jit
def _ban_repeats(
    tokens, states, matched, logits, capacity, vocabulary, slots,
    K: tl.constexpr, RING: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    block, slot = tl.program_id(0), tl.program_id(1)
    state = states + slot * AT_SIZE
    position, live = row_position(states, slot, 0)
    size = tl.load(state + AT_NGRAM)
    # A lane is a diagonal: place j = first + r of row r comes after place j - 1 of row r - 1.
    first = block * BLOCK + tl.arange(0, BLOCK) - (K - 1)
    if live & (size > 0) & (block * BLOCK <= position + K - 1):
        row = tokens + slot.to(tl.int64) * capacity
        ring = matched + slot.to(tl.int64) * RING * capacity
        inside = first <= position
        count = tl.load(
            ring + (position + RING - 1) % RING * capacity + first - 1, mask=inside & (first > 0), other=0
        )
        for r in tl.static_range(K):
            j, here = first + r, position + r
            current = tl.load(row + here)
            follows = inside & (j > 0)
            same = tl.load(row + j - 1, mask=follows, other=-1) == current
            count = tl.where(follows & same, count + 1, 0)
            tl.store(ring + here % RING * capacity + j, count, mask=inside & (j >= 0))
            repeats = inside & (j >= 0) & (count >= size - 1)
            token = tl.load(row + j, mask=repeats, other=0)
            banned = tl.full([BLOCK], float("-inf"), tl.float32).to(logits.dtype.element_ty)
            mask = forbidden(repeats, j, token, here, size, state)
            tl.store(logits + (r * slots + slot).to(tl.int64) * vocabulary + token, banned, mask=mask)


@triton.jit
def _better(logit, token, other, other_token):
    """Tell whether the other logit is larger, or equal with a lower id."""
    return (other > logit) | ((other == logit) & (other_token < token))


@triton.jit
def _best_of_parts(
    logits, states, best_logit, best_token, vocabulary, slots,
    PART: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    part, number = tl.program_id(0), tl.program_id(1)
    _, live = row_position(states, number % slots, number // slots)
    if live:
        row = logits + number.to(tl.int64) * vocabulary
        lane = tl.arange(0, BLOCK)
        # A lane goes through its part in order and so keeps the lowest id of equal logits.
        logit = tl.full([BLOCK], float("-inf"), tl.float32)
        token = tl.full([BLOCK], 2147483647, tl.int32)
        for start in range(0, tl.minimum(PART, vocabulary - part * PART), BLOCK):
            other_token = part * PART + start + lane
            inside = other_token < vocabulary
            other = tl.load(row + other_token, mask=inside, other=float("-inf")).to(tl.float32)
            better = inside & _better(logit, token, other, other_token)
            logit = tl.where(better, other, logit)
            token = tl.where(better, other_token, token)
        top = tl.max(logit, axis=0)
        at = number * tl.num_programs(0) + part
        tl.store(best_logit + at, top)
        tl.store(best_token + at, tl.min(tl.where(logit == top, token, 2147483647), axis=0))


@triton.jit
def _take_best_rows(
    best_logit,
    best_token,
    tokens,
    states,
    capacity,
    parts,
    eos,
    last_id,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    slot = tl.program_id(0)
    state = states + slot * AT_SIZE
    position, last = tl.load(state + AT_POSITION), tl.load(state + AT_LAST)
    if tl.load(state + AT_DONE) == 0:
        lane = tl.arange(0, BLOCK)
        inside = lane < parts
        logit = tl.load(best_logit + slot * parts + lane, mask=inside, other=float("-inf"))
        token = tl.load(best_token + slot * parts + lane, mask=inside, other=2147483647)
        top = tl.max(logit, axis=0)
        best = tl.min(tl.where(logit == top, token, 2147483647), axis=0)
        best = tl.minimum(best, last_id)  # an id of the vocabulary, even where weights are NaN
        tl.store(tokens + slot.to(tl.int64) * capacity + position + 1, best)
        ends = (best == eos) | (position + 1 >= last)
        tl.store(state + AT_DONE, ends.to(tl.int32))
        # The last token is never fed back, so the position stays.
        tl.store(state + AT_POSITION, tl.where(ends, position, position + 1))


def head_parts(vocabulary: int) -> int:
    """N: number of candidates that `best_of_parts` leaves of a row."""
    return -(-vocabulary // PART)


def ban_repeats(tokens: Tensor, states: Tensor, matched: Tensor, logits: Tensor, launch: Launch) -> None:
    """Set `logits` (R, V) of what may not follow to -inf; bring `matched` (S, M, T) up to date, M above K.

    `tokens` (S, T) int32 with each slot's current token at its position and its drafted ones behind, `states`
    (S, SIZE) int32.
    """
    (slots, capacity), (rows, vocabulary), ring = tokens.shape, logits.shape, matched.shape[1]
    device = tokens.device
    if rows % slots or ring <= rows // slots:
        raise ValueError(f"{rows} rows for {slots} slots and {ring} rows of matches")
    expect_all(logits.dtype, device, logits=(logits, (rows, vocabulary)))
    expect_all(
        torch.int32, device, tokens=(tokens, (slots, capacity)), states=(states, (slots, SIZE)),
        matched=(matched, (slots, ring, capacity)),
    )  # fmt: skip
    _ban_repeats[(triton.cdiv(capacity, launch.rows), slots)](
        tokens, states, matched, logits, capacity, vocabulary, slots,
        K=rows // slots, RING=ring, BLOCK=launch.rows, num_warps=launch.warps, **overlapping(logits.device),
    )  # fmt: skip


def ban_repeats_reference(tokens, states, matched, logits, launch=None):
    """Reference in plain torch."""
    slots, ring = matched.shape[:2]
    for number, live in enumerate(row_position_reference(states, len(logits))[1].tolist()):
        slot = number % slots
        state = states[slot].tolist()
        state[POSITION] = position = state[POSITION] + number // slots
        if not live or state[NGRAM] == 0:
            continue
        row, old, new = tokens[slot], matched[slot, (position - 1) % ring], matched[slot, position % ring]
        new[0] = 0
        new[1 : position + 1] = torch.where(row[:position] == row[position], old[:position] + 1, 0)
        logits[number, forbidden_reference(row, new, state)] = float("-inf")


def best_of_parts(
    logits: Tensor, states: Tensor, best_logit: Tensor, best_token: Tensor, launch: Launch
) -> None:
    """Write the best logit of each part of a row and its token, (R, N) float32 and int32.

    `logits` (R, V), `states` (S, SIZE) int32; the lowest id wins a tie.
    """
    (rows, vocabulary), slots, device = logits.shape, states.shape[0], logits.device
    candidates = (rows, head_parts(vocabulary))
    if rows % slots:
        raise ValueError(f"{rows} rows for {slots} slots")
    expect_all(logits.dtype, device, logits=(logits, (rows, vocabulary)))
    expect("states", states, (slots, SIZE), torch.int32, device)
    expect("best_logit", best_logit, candidates, torch.float32, device)
    expect("best_token", best_token, candidates, torch.int32, device)
    _best_of_parts[(head_parts(vocabulary), rows)](
        logits, states, best_logit, best_token, vocabulary, slots,
        PART=PART, BLOCK=launch.rows, num_warps=launch.warps, **overlapping(logits.device),
    )  # fmt: skip


def best_of_parts_reference(logits, states, best_logit, best_token, launch=None):
    """Reference in plain torch."""
    live = row_position_reference(states, len(logits))[1]
    for part in range(best_logit.shape[1]):
        logit, index = logits[:, part * PART : (part + 1) * PART].max(dim=1)  # (R,) each
        best_logit[live, part] = logit[live].to(torch.float32)
        best_token[live, part] = (index[live] + part * PART).to(torch.int32)


def take_best_rows(
    best_logit: Tensor,
    best_token: Tensor,
    tokens: Tensor,
    states: Tensor,
    eos: int,
    vocabulary: int,
    launch: Launch,
) -> None:
    """Append each live slot's best candidate to `tokens` (S, T) int32 and move its state on.

    `best_logit` (S, N) float32, `best_token` (S, N) int32, `states` (S, SIZE) int32.
    """
    (slots, capacity), parts, device = tokens.shape, best_logit.shape[1], tokens.device
    candidates = slots, parts
    expect("best_logit", best_logit, candidates, torch.float32, device)
    at = states, (slots, SIZE)
    expect_all(
        torch.int32,
        device,
        best_token=(best_token, candidates),
        tokens=(tokens, (slots, capacity)),
        states=at,
    )
    _take_best_rows[(slots,)](
        best_logit, best_token, tokens, states, capacity, parts, eos, vocabulary - 1,
        BLOCK=triton.next_power_of_2(parts), num_warps=launch.warps, **overlapping(tokens.device),
    )  # fmt: skip


def take_best_rows_reference(best_logit, best_token, tokens, states, eos, vocabulary, launch=None):
    """Reference in plain torch."""
    for slot, state in enumerate(states.tolist()):
        if state[DONE]:
            continue
        best = min(int(best_token[slot, best_logit[slot].argmax()]), vocabulary - 1)
        after = state[POSITION] + 1
        tokens[slot, after] = best
        if best == eos or after >= state[LAST]:
            states[slot, DONE] = 1
        else:
            states[slot, POSITION] = after

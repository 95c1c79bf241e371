# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The decode state of a sequence, on the device: int32 numbers that the host writes once a page.

In a batch every slot has its own: (S, SIZE).

| index    | meaning                                                                        |
|----------|--------------------------------------------------------------------------------|
| POSITION | of the current token, the last one chosen; the caches hold all before it       |
| LAST     | position of the last token that the limit allows                               |
| DONE     | 1 after the end token or LAST: steps then change nothing                       |
| NGRAM    | size of the n-grams that may not repeat, 0 for no such rule                    |
| WINDOW   | tokens that the rule looks back on, `EVERYTHING` without a window              |
| FIRST    | position of the first token that counts: 0, or with a window the first new one |
| PROMPT   | tokens of the prompt: of a cache with a ring the slots before it               |
| EXEMPT   | the first of MOST_EXEMPT ids that the rule never forbids, -1 where there is none |
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.reading.records import MOST_EXEMPT, NgramPolicy

POSITION, LAST, DONE, NGRAM, WINDOW, FIRST, PROMPT, EXEMPT = range(8)
SIZE = EXEMPT + MOST_EXEMPT

EVERYTHING = 2**31 - 1
NO_TOKEN = -1

# Kernels see module constants only as these.
AT_POSITION, AT_LAST, AT_DONE, AT_NGRAM = map(tl.constexpr, (POSITION, LAST, DONE, NGRAM))
AT_WINDOW, AT_FIRST, AT_PROMPT, AT_EXEMPT = map(tl.constexpr, (WINDOW, FIRST, PROMPT, EXEMPT))
EXEMPT_COUNT, AT_SIZE = tl.constexpr(MOST_EXEMPT), tl.constexpr(SIZE)


@triton.jit
def place(position, state, RING: tl.constexpr):
    """Place in the cache for a position, and the number of places filled before.

    With a ring of RING places behind the prompt, places are used again. 0 is no ring.
    """
    slot, filled = position, position
    if RING:
        prompt = tl.load(state + AT_PROMPT, cache_modifier=".cg")
        slot = prompt + (position - prompt) % RING
        filled = tl.minimum(position, prompt + RING)
    return slot, filled


@triton.jit
def stored(n, slot, position, prompt, RING: tl.constexpr, SPARE: tl.constexpr):
    """Find the places in memory that slots n have for the row of a position, whose own slot is `slot`.

    In memory a ring may have SPARE places more than slots: rows ahead of this one, which a refused draft
    leaves behind, then overwrite nothing that it sees. Its slots, and with them its sums, keep their order.
    """
    where = n
    if SPARE:
        number = position - prompt - (slot - n + RING) % RING
        where = tl.where(n < prompt, n, prompt + number % (RING + SPARE))
    return where


@triton.jit
def row_position(states, slot, ahead):
    """Position of a slot's row that is `ahead` tokens after the current one, and whether the row counts.

    It does not once the sequence has ended, nor where the limit leaves it no token to choose.
    """
    state = states + slot * AT_SIZE
    position = tl.load(state + AT_POSITION) + ahead
    return position, (tl.load(state + AT_DONE) == 0) & (position < tl.load(state + AT_LAST))


@triton.jit
def forbidden(repeats, j, token, position, size, state):
    """Mask of the places j whose n-gram would repeat: within the window, and token not exempt."""
    window, first = tl.load(state + AT_WINDOW), tl.load(state + AT_FIRST)
    lowest = tl.maximum(first, position + 1 - window)
    forbidden = repeats & (j - (size - 1) >= lowest)
    for number in tl.static_range(EXEMPT_COUNT):
        forbidden = forbidden & (token != tl.load(state + AT_EXEMPT + number))
    return forbidden


def state_row(position: int, last: int, done: int, policy: NgramPolicy, first_new: int) -> list[int]:
    """State of a sequence that begins. `first_new` is the position of its first new token."""
    window = policy.window or EVERYTHING
    first = first_new if policy.window and not policy.over_prompt else 0
    exempt = [*policy.exempt, *[NO_TOKEN] * (MOST_EXEMPT - len(policy.exempt))]
    return [position, last, done, policy.size, window, first, first_new, *exempt]


def forbidden_reference(tokens: Tensor, matched: Tensor, state: list[int]) -> Tensor:
    """Ids that a sequence's rule forbids, from `tokens` (T,) up to its position and `matched` (T,)."""
    position, size = state[POSITION], state[NGRAM]
    j = torch.arange(position + 1, device=tokens.device)
    lowest = max(state[FIRST], position + 1 - state[WINDOW])
    row = tokens[: position + 1]
    exempt = torch.tensor(state[EXEMPT:SIZE], dtype=row.dtype, device=row.device)
    counts = (matched[: position + 1] >= size - 1) & (j - (size - 1) >= lowest)
    return row[counts & ~torch.isin(row, exempt)].long()


def place_reference(state: Tensor, ring: int = 0, ahead: int = 0) -> tuple[int, int]:
    """`place` for the row that is `ahead` tokens after the sequence's current one."""
    position, prompt = int(state[POSITION]) + ahead, int(state[PROMPT])
    if not ring:
        return position, position
    return prompt + (position - prompt) % ring, min(position, prompt + ring)


def stored_reference(state: Tensor, ring: int, spare: int, ahead: int = 0) -> Tensor:
    """`stored` of every slot that the row so many tokens ahead sees, in their order."""
    slot, filled = place_reference(state, ring, ahead)
    n, prompt = torch.arange(max(slot + 1, filled), device=state.device), int(state[PROMPT])
    if not spare:
        return n
    number = int(state[POSITION]) + ahead - prompt - (slot - n) % ring
    return torch.where(n < prompt, n, prompt + number % (ring + spare))


def row_position_reference(states: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Positions (R,) of that many rows over S slots and which of them count: row r S + s is r ahead in s."""
    slots = states.shape[0]
    ahead = torch.arange(rows // slots, device=states.device).repeat_interleave(slots)
    each = states.repeat(rows // slots, 1)
    positions = each[:, POSITION] + ahead
    return positions, (each[:, DONE] == 0) & (positions < each[:, LAST])

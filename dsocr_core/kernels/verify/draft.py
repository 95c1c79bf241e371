# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""First and last kernel of a pass: the rows that a draft proposes, and what of them is accepted.

Letters: K rows, C hidden size, V vocabulary, T tokens held, D tokens of the draft, N candidates a row, R rows
of `matched`, p position of the current token.

The draft's state is int32 on the device:

| index    | meaning                                                                   |
|----------|---------------------------------------------------------------------------|
| SHIFT    | the draft's token for position j is its number j + SHIFT                  |
| LENGTH   | tokens of the draft                                                       |
| PASSES   | passes made                                                               |
| DRAFTED  | tokens proposed in them                                                   |
| ACCEPTED | tokens accepted                                                           |

Row r is fed the draft's token for p + r and computes the next one, which counts if all rows before it
computed what the draft said. After a miss the draft's place is looked for: the run of last tokens that is
longest in it, two at least within NEAR of where it was, else four; of equal ones the nearest. Without any the
shift stays, as after a wrong character. Rolling back is the position alone: cache rows, `matched` and stamps
past it are written again before they are read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all
from dsocr_core.kernels.state import (
    AT_DONE,
    AT_LAST,
    AT_NGRAM,
    AT_POSITION,
    SIZE,
    forbidden,
)

SHIFT, LENGTH, PASSES, DRAFTED, ACCEPTED = range(5)
DRAFT_SIZE = 5
NOTHING = -1
"""A draft's token where it proposes none."""

NEAR, LEAST_NEAR, LEAST_FAR, LONGEST = 32, 2, 4, 8
"""Distance that is near, and how many tokens must match there, elsewhere and at most."""

AT_SHIFT, AT_LENGTH, AT_PASSES = tl.constexpr(SHIFT), tl.constexpr(LENGTH), tl.constexpr(PASSES)
AT_DRAFTED, AT_ACCEPTED = tl.constexpr(DRAFTED), tl.constexpr(ACCEPTED)
_NOTHING, _NEAR, _LONGEST = tl.constexpr(NOTHING), tl.constexpr(NEAR), tl.constexpr(LONGEST)
_LEAST_NEAR, _LEAST_FAR = tl.constexpr(LEAST_NEAR), tl.constexpr(LEAST_FAR)


@triton.jit
def _token_at(tokens, draft, j, position, shift, length, wanted):
    """Tokens at positions j: those held up to `position`, the draft's after it."""
    held = tl.load(tokens + j, mask=wanted & (j >= 0) & (j <= position), other=_NOTHING)
    at = j + shift
    proposed = wanted & (j > position) & (at >= 0) & (at < length)
    return tl.where(j <= position, held, tl.load(draft + at, mask=proposed, other=_NOTHING))


@triton.jit
def _embed_draft(
    tokens, state, draft, draft_state, table, x, matched, banned_at, held, vocabulary,
    K: tl.constexpr, RING: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    position = tl.load(state + AT_POSITION)
    shift, length = tl.load(draft_state + AT_SHIFT), tl.load(draft_state + AT_LENGTH)
    block = tl.program_id(0)
    if block < K:
        cols = tl.arange(0, COLUMNS)
        token = _token_at(tokens, draft, position + block, position, shift, length, True)
        row = tl.maximum(token, 0).to(tl.int64) * WIDTH
        tl.store(x + block * WIDTH + cols, tl.load(table + row + cols, mask=cols < WIDTH), mask=cols < WIDTH)
    size = tl.load(state + AT_NGRAM)
    # A lane is a diagonal: the place j = first + r of row r follows place j - 1 of row r - 1.
    first = block * BLOCK + tl.arange(0, BLOCK) - K
    if (size > 0) & (block * BLOCK <= position + K):
        inside = first <= position
        before = position + RING - 1
        count = tl.load(matched + before % RING * held + first - 1, mask=inside & (first > 0), other=0)
        for r in tl.static_range(K):
            j = first + r
            here = position + r
            current = _token_at(tokens, draft, here, position, shift, length, True)
            follows = inside & (j > 0)
            same = _token_at(tokens, draft, j - 1, position, shift, length, follows) == current
            count = tl.where(follows & same, count + 1, 0)
            tl.store(matched + here % RING * held + j, count, mask=inside & (j >= 0))
            repeats = inside & (j >= 0) & (count >= size - 1)
            token = _token_at(tokens, draft, j, position, shift, length, repeats)
            stamps = banned_at + r * vocabulary + token
            banned = forbidden(repeats, j, token, here, size, state) & (token >= 0)
            tl.store(stamps, here, mask=banned)


@triton.jit
def _accept(
    best_logit, best_token, tokens, logits, state, draft, draft_state, count, eos, last_id,
    K: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    NO_ID: tl.constexpr = 2147483647
    await_previous(PDL)
    row, lane = tl.arange(0, K), tl.arange(0, BLOCK)
    logit = tl.full([K, BLOCK], float("-inf"), tl.float32)
    token = tl.full([K, BLOCK], NO_ID, tl.int32)
    for start in range(0, count, BLOCK):
        inside = tl.broadcast_to((start + lane < count)[None, :], [K, BLOCK])
        at = row[:, None] * count + start + lane[None, :]
        other = tl.load(best_logit + at, mask=inside, other=float("-inf"))
        other_token = tl.load(best_token + at, mask=inside, other=NO_ID)
        better = (other > logit) | ((other == logit) & (other_token < token))
        logit = tl.where(better, other, logit)
        token = tl.where(better, other_token, token)
    top = tl.max(logit, axis=1)
    best = tl.min(tl.where(logit == top[:, None], token, NO_ID), axis=1)
    best = tl.minimum(best, last_id)  # whatever NaN weights make of it, an id of the vocabulary

    position, last, done = tl.load(state + AT_POSITION), tl.load(state + AT_LAST), tl.load(state + AT_DONE)
    shift, length = tl.load(draft_state + AT_SHIFT), tl.load(draft_state + AT_LENGTH)
    after = position + 1 + row
    guess = after + shift
    guess = tl.load(draft + guess, mask=(guess >= 0) & (guess < length), other=_NOTHING)
    # Row r + 1 was fed guess r: the first row whose guess is wrong is the last that counts.
    missed = tl.min(tl.where((guess == best) & (row < K - 1), K, row), axis=0)
    end = tl.min(tl.where((best == eos) | (after >= last), row, K), axis=0)
    ends = end <= missed
    taken = tl.minimum(missed, end) + 1
    if done == 0:
        tl.store(tokens + after, best, mask=row < taken)
        tl.store(logits + after, top, mask=row < taken)
        tl.store(state + AT_DONE, ends.to(tl.int32))
        # The last token is never fed back: its position is not entered.
        newest = position + taken - ends.to(tl.int32)
        tl.store(state + AT_POSITION, newest)
        proposed = tl.sum(((guess >= 0) & (row < K - 1)).to(tl.int32), axis=0)
        tl.store(draft_state + AT_PASSES, tl.load(draft_state + AT_PASSES) + 1)
        tl.store(draft_state + AT_DRAFTED, tl.load(draft_state + AT_DRAFTED) + proposed)
        tl.store(draft_state + AT_ACCEPTED, tl.load(draft_state + AT_ACCEPTED) + taken - 1)
        if (missed < K - 1) & (not ends):
            tl.debug_barrier()  # the tokens just stored are read by other threads
            span = tl.arange(0, SPAN)
            score, place = tl.zeros([SPAN], tl.int32), tl.zeros([SPAN], tl.int32)
            for start in range(0, length, SPAN):
                j = start + span
                same = j < length
                run = tl.zeros([SPAN], tl.int32)
                for back in tl.static_range(_LONGEST):
                    said = tl.load(draft + j - back, mask=same & (j >= back), other=_NOTHING)
                    held = tl.load(
                        tokens + newest - back, mask=newest >= back, other=-2, cache_modifier=".cg"
                    )
                    same = same & (said == held)
                    run += same.to(tl.int32)
                away = tl.minimum(tl.abs(j - newest - shift), 65535)
                least = tl.where(away <= _NEAR, _LEAST_NEAR, _LEAST_FAR)
                value = tl.where(run >= least, run * 65536 + 65535 - away, 0)
                place = tl.where(value > score, j, place)
                score = tl.maximum(value, score)
            highest = tl.max(score, axis=0)
            found = tl.min(tl.where(score == highest, place, NO_ID), axis=0)
            tl.store(draft_state + AT_SHIFT, tl.where(highest > 0, found - newest, shift))


def embed_draft(
    tokens: Tensor,
    state: Tensor,
    draft: Tensor,
    draft_state: Tensor,
    table: Tensor,
    x: Tensor,
    ngrams: tuple[Tensor, Tensor],
    launch: Launch,
) -> None:
    """Write K rows' embeddings to `x` (K, C) and stamp what may not follow each.

    `tokens` (T,), `state` (SIZE,), `draft` (D,) and `draft_state` (DRAFT_SIZE,) int32, `table` (V, C);
    `ngrams` are `matched` (R, T), R above K, and `banned_at` (K, V), int32. Raises ValueError when these do
    not fit each other.
    """
    (matched, banned_at), (vocabulary, width), (rows, _) = ngrams, table.shape, x.shape
    (held,), (ring, _), device = tokens.shape, matched.shape, table.device
    if ring <= rows:
        raise ValueError(f"{rows} rows need more than {ring} rows of matches")
    expect_all(table.dtype, device, table=(table, (vocabulary, width)), x=(x, (rows, width)))
    expect("tokens", tokens, (held,), torch.int32, device)
    expect("state", state, (SIZE,), torch.int32, device)
    expect("draft", draft, tuple(draft.shape), torch.int32, device)
    expect("draft_state", draft_state, (DRAFT_SIZE,), torch.int32, device)
    expect("matched", matched, (ring, held), torch.int32, device)
    expect("banned_at", banned_at, (rows, vocabulary), torch.int32, device)
    programs = max(rows, triton.cdiv(held + rows, launch.rows))
    _embed_draft[(programs,)](
        tokens, state, draft, draft_state, table, x, matched, banned_at, held, vocabulary,
        K=rows, RING=ring, WIDTH=width, COLUMNS=triton.next_power_of_2(width), BLOCK=launch.rows,
        **launch.options(),
    )  # fmt: skip


def accept(
    best: tuple[Tensor, Tensor],
    tokens: Tensor,
    logits: Tensor,
    state: Tensor,
    draft: Tensor,
    draft_state: Tensor,
    ids: tuple[int, int],
    launch: Launch,
) -> None:
    """Append what K rows agree on and one token more, and move both states on, unless the sequence is done.

    `best` as `best_of_bounded` writes it, logits (K, N) float32 and ids (K, N) int32; `tokens` (T,) int32,
    `logits` (T,) float32, `state` (SIZE,), `draft` (D,) and `draft_state` (DRAFT_SIZE,) int32; `ids` are the
    end token's and the size of the vocabulary. Raises ValueError when these do not fit each other.
    """
    (best_logit, best_token), device, (eos, vocabulary) = best, tokens.device, ids
    rows, count = best_logit.shape
    expect("best_logit", best_logit, (rows, count), torch.float32, device)
    expect("best_token", best_token, (rows, count), torch.int32, device)
    expect("tokens", tokens, tuple(tokens.shape), torch.int32, device)
    expect("logits", logits, tuple(tokens.shape), torch.float32, device)
    expect("state", state, (SIZE,), torch.int32, device)
    expect("draft", draft, tuple(draft.shape), torch.int32, device)
    expect("draft_state", draft_state, (DRAFT_SIZE,), torch.int32, device)
    _accept[(1,)](
        best_logit, best_token, tokens, logits, state, draft, draft_state, count, eos, vocabulary - 1,
        K=rows, BLOCK=min(launch.rows, triton.next_power_of_2(count)), SPAN=launch.rows, **launch.options(),
    )  # fmt: skip

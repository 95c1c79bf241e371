# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Last kernel of a step with drafts: decides which of the proposed tokens are accepted.

Letters: S slots, K rows a slot, T tokens a slot holds, D tokens of a draft, N candidates a row, p position of
the current token.

The draft's state is int32 on the device:

| index    | meaning                                                                   |
|----------|---------------------------------------------------------------------------|
| SHIFT    | the draft's token for position j is its number j + SHIFT                  |
| LENGTH   | tokens of the draft                                                       |
| PASSES   | passes made                                                               |
| DRAFTED  | tokens proposed in them                                                   |
| ACCEPTED | tokens accepted                                                           |
| RIGHT    | new tokens that the draft had right, whether they were fed or not         |
| WRONG    | new tokens that it had wrong                                              |

Row r is fed the draft's token for p + r and computes the next one, which counts if all rows before it
computed what the draft said. A pass of one row is a single step: it only checks the draft, and is not counted
as a pass. After two misses in a row the draft is searched for its new place: the longest run of the last
tokens, at least two within NEAR of the old place, else four; of equal runs the nearest. Without one the shift
stays. It stays after one miss too: that is a wrong character, and in a text that repeats itself another place
would have the last tokens as well. Rolling back sets the position alone: cache rows, `matched` and stamps
past it are written again before they are read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all
from dsocr_core.kernels.state import AT_DONE, AT_LAST, AT_POSITION, AT_SIZE, DONE, LAST, POSITION, SIZE

SHIFT, LENGTH, PASSES, DRAFTED, ACCEPTED, RIGHT, WRONG = range(7)
DRAFT_SIZE = 7
NOTHING = -1
"""Token of a draft that proposes none."""

MOST_CANDIDATES = 8192
"""Most candidates of all rows that a program compares at once; more do not fit its registers."""

NEAR, LEAST_NEAR, LEAST_FAR, LONGEST = 32, 2, 4, 8
"""Distance that is near; tokens that must match there, and elsewhere; most tokens compared."""

AT_SHIFT, AT_LENGTH, AT_PASSES = tl.constexpr(SHIFT), tl.constexpr(LENGTH), tl.constexpr(PASSES)
AT_DRAFTED, AT_ACCEPTED = tl.constexpr(DRAFTED), tl.constexpr(ACCEPTED)
AT_RIGHT, AT_WRONG, AT_DRAFT_SIZE = tl.constexpr(RIGHT), tl.constexpr(WRONG), tl.constexpr(DRAFT_SIZE)
_NOTHING, _NEAR, _LONGEST = tl.constexpr(NOTHING), tl.constexpr(NEAR), tl.constexpr(LONGEST)
_LEAST_NEAR, _LEAST_FAR = tl.constexpr(LEAST_NEAR), tl.constexpr(LEAST_FAR)


@triton.jit
def _increase(counter, by):
    tl.store(counter, tl.load(counter) + by)


@triton.jit
def _placed(tokens, newest, draft, shift, length, SPAN: tl.constexpr):
    """Shift at which the draft has the longest run of the last tokens, up to `newest`."""
    NO_ID: tl.constexpr = 2147483647
    span = tl.arange(0, SPAN)
    score, place = tl.zeros([SPAN], tl.int32), tl.zeros([SPAN], tl.int32)
    for start in range(0, length, SPAN):
        j = start + span
        same = j < length
        run = tl.zeros([SPAN], tl.int32)
        for back in tl.static_range(_LONGEST):
            said = tl.load(draft + j - back, mask=same & (j >= back), other=_NOTHING)
            fed = tl.load(tokens + newest - back, mask=newest >= back, other=-2, cache_modifier=".cg")
            same = same & (said == fed)
            run += same.to(tl.int32)
        away = tl.minimum(tl.abs(j - newest - shift), 65535)
        least = tl.where(away <= _NEAR, _LEAST_NEAR, _LEAST_FAR)
        value = tl.where(run >= least, run * 65536 + 65535 - away, 0)
        place = tl.where(value > score, j, place)
        score = tl.maximum(value, score)
    highest = tl.max(score, axis=0)
    found = tl.min(tl.where(score == highest, place, NO_ID), axis=0)
    return tl.where(highest > 0, found - newest, shift)


@triton.jit
def _accept(
    best_logit, best_token, all_tokens, states, drafts, draft_states, count, eos, last_id, capacity, most,
    K: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    NO_ID: tl.constexpr = 2147483647
    await_previous(PDL)
    slot, slots = tl.program_id(0), tl.num_programs(0)
    tokens, draft = all_tokens + slot.to(tl.int64) * capacity, drafts + slot.to(tl.int64) * most
    state, draft_state = states + slot * AT_SIZE, draft_states + slot * AT_DRAFT_SIZE
    row, lane = tl.arange(0, K), tl.arange(0, BLOCK)
    logit = tl.full([K, BLOCK], float("-inf"), tl.float32)
    token = tl.full([K, BLOCK], NO_ID, tl.int32)
    for start in range(0, count, BLOCK):
        inside = tl.broadcast_to((start + lane < count)[None, :], [K, BLOCK])
        at = (row * slots + slot)[:, None] * count + start + lane[None, :]
        other = tl.load(best_logit + at, mask=inside, other=float("-inf"))
        other_token = tl.load(best_token + at, mask=inside, other=NO_ID)
        better = (other > logit) | ((other == logit) & (other_token < token))
        logit = tl.where(better, other, logit)
        token = tl.where(better, other_token, token)
    top = tl.max(logit, axis=1)
    best = tl.min(tl.where(logit == top[:, None], token, NO_ID), axis=1)
    best = tl.minimum(best, last_id)  # an id of the vocabulary, even where weights are NaN

    position, last, done = tl.load(state + AT_POSITION), tl.load(state + AT_LAST), tl.load(state + AT_DONE)
    shift, length = tl.load(draft_state + AT_SHIFT), tl.load(draft_state + AT_LENGTH)
    after = position + 1 + row
    guess = after + shift
    guess = tl.load(draft + guess, mask=(guess >= 0) & (guess < length), other=_NOTHING)
    # Row r + 1 was fed guess r: the first row whose guess is wrong is the last that counts.
    missed = tl.min(tl.where(guess == best, K, row), axis=0)
    end = tl.min(tl.where((best == eos) | (after >= last), row, K), axis=0)
    taken = tl.minimum(tl.minimum(missed, end), K - 1) + 1
    ends = end < taken
    if done == 0:
        tl.store(tokens + after, best, mask=row < taken)
        tl.store(state + AT_DONE, ends.to(tl.int32))
        # The last token is never fed back, so the position stays.
        newest = position + taken - ends.to(tl.int32)
        tl.store(state + AT_POSITION, newest)
        proposed = tl.sum(((guess >= 0) & (row < K - 1)).to(tl.int32), axis=0)
        wrong = missed < taken
        if K > 1:
            _increase(draft_state + AT_PASSES, 1)
        _increase(draft_state + AT_DRAFTED, proposed)
        _increase(draft_state + AT_ACCEPTED, taken - 1)
        _increase(draft_state + AT_RIGHT, taken - wrong.to(tl.int32))
        _increase(draft_state + AT_WRONG, wrong.to(tl.int32))
        if wrong & (not ends):
            tl.debug_barrier()  # other threads read the tokens just stored
            before = newest - 1 + shift
            said = tl.load(draft + before, mask=(before >= 0) & (before < length), other=_NOTHING)
            if said != tl.load(tokens + newest - 1, mask=newest > 0, other=-2, cache_modifier=".cg"):
                tl.store(draft_state + AT_SHIFT, _placed(tokens, newest, draft, shift, length, SPAN))


def accept(
    best: tuple[Tensor, Tensor],
    tokens: Tensor,
    states: Tensor,
    drafts: tuple[Tensor, Tensor],
    ids: tuple[int, int],
    launch: Launch,
) -> None:
    """Append the tokens that K rows agree on and one more, update both states; not in a finished slot.

    `best` are the candidates' logits (K S, N) float32 and ids (K S, N) int32, row r S + s is r tokens ahead
    in slot s; `tokens` (S, T), `states` (S, SIZE), `drafts` tokens (S, D) and states (S, DRAFT_SIZE), int32;
    `ids` are the end token's and the size of the vocabulary.
    """
    (rows, count), (slots, capacity), device = best[0].shape, tokens.shape, tokens.device
    draft, draft_states = drafts
    if rows % slots:
        raise ValueError(f"{rows} rows for {slots} slots")
    expect("best_logit", best[0], (rows, count), torch.float32, device)
    expect_all(
        torch.int32, device, best_token=(best[1], (rows, count)), tokens=(tokens, (slots, capacity)),
        states=(states, (slots, SIZE)), draft=(draft, (slots, draft.shape[-1])),
        draft_states=(draft_states, (slots, DRAFT_SIZE)),
    )  # fmt: skip
    _accept[(slots,)](
        *best, tokens, states, draft, draft_states, count, ids[0], ids[1] - 1, capacity, draft.shape[1],
        K=rows // slots, SPAN=launch.rows,
        BLOCK=min(launch.rows, MOST_CANDIDATES * slots // rows, triton.next_power_of_2(count)),
        **launch.options(),
    )  # fmt: skip


def accept_reference(best, tokens, states, drafts, ids, launch=None):
    """Reference in plain torch."""
    slots = len(tokens)
    rows = len(best[0]) // slots
    for slot in range(slots):
        state, place, draft = states[slot], drafts[1][slot], drafts[0][slot].tolist()
        if state[DONE]:
            continue
        shift, length = place[:2].tolist()
        taken, wrong, ends = 0, False, False
        while taken < rows and not wrong and not ends:
            candidates, row = best[0][taken * slots + slot], taken * slots + slot
            token = min(int(best[1][row, candidates.argmax()]), ids[1] - 1)
            after = int(state[POSITION]) + taken + 1
            tokens[slot, after] = token
            number = after + shift
            wrong = not (0 <= number < length and draft[number] == token)
            ends = token == ids[0] or after >= int(state[LAST])
            taken += 1
        proposed = [int(state[POSITION]) + r + shift for r in range(1, rows)]
        state[DONE] = int(ends)
        state[POSITION] += taken - int(ends)
        place[PASSES] += int(rows > 1)
        place[DRAFTED] += sum(0 <= number < length and draft[number] >= 0 for number in proposed)
        place[ACCEPTED] += taken - 1
        place[RIGHT] += taken - int(wrong)
        place[WRONG] += int(wrong)
        if wrong and not ends:
            newest = int(state[POSITION])
            place[SHIFT] = _placed_reference(tokens[slot, : newest + 1].tolist(), draft[:length], shift)


def _placed_reference(tokens: list[int], draft: list[int], shift: int) -> int:
    newest, best = len(tokens) - 1, (0, 0, shift)
    if 0 <= newest - 1 + shift < len(draft) and draft[newest - 1 + shift] == tokens[newest - 1]:
        return shift
    for place in range(len(draft)):
        most = min(LONGEST, place + 1, newest + 1)
        run = next((n for n in range(most) if draft[place - n] != tokens[newest - n]), most)
        away = abs(place - newest - shift)
        if run >= (LEAST_NEAR if away <= NEAR else LEAST_FAR):
            best = max(best, (run, -away, place - newest), key=lambda found: found[:2])
    return best[2]

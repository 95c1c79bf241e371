# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Last two kernels of a step: final norm, head, ban and argmax; then the token is added to the sequence.

Letters: C hidden size, V vocabulary, N programs of the head, T tokens the buffer holds.

Logits never reach memory: a program writes only the best of its `rows`. A banned token is one that carries
this step's stamp (`embed_token`); the check costs 4 bytes beside a row's 2 C. Moves V C weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, load_rows, load_vector, product_reference, rounded
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference
from dsocr_core.kernels.state import AT_DONE, AT_LAST, AT_POSITION, DONE, LAST, POSITION, SIZE


@triton.jit
def _best_of_rows(
    x, gain, head, banned_at, state, best_logit, best_token, eps, vocabulary,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    program = tl.program_id(0)
    row = program * ROWS + tl.arange(0, ROWS)
    live = row < vocabulary
    rows = load_rows(head + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
    gains = load_vector(gain, WIDTH, CHUNK)
    # The first kernel of the step wrote the stamps.
    banned = tl.load(banned_at + row, mask=live, other=0, cache_modifier=".cg")
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")

    await_previous(PDL)
    y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    logits = rounded(dot_rows(rows, y, COUNT, ROWS, CHUNK), DTYPE)
    allowed = tl.where(live & (banned != position), logits, float("-inf"))
    logit, index = tl.max(allowed, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(best_logit + program, logit)
    tl.store(best_token + program, program * ROWS + index)


@triton.jit
def _take_best(
    best_logit, best_token, tokens, state, count, eos, last_id, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    await_previous(PDL)
    lane = tl.arange(0, BLOCK)
    # A lane goes through the programs in order, so it keeps the lowest id of equals.
    logit = tl.full([BLOCK], float("-inf"), tl.float32)
    token = tl.full([BLOCK], 2147483647, tl.int32)
    for start in range(0, count, BLOCK):
        inside = start + lane < count
        other = tl.load(best_logit + start + lane, mask=inside, other=float("-inf"))
        other_token = tl.load(best_token + start + lane, mask=inside, other=2147483647)
        better = (other > logit) | ((other == logit) & (other_token < token))
        logit = tl.where(better, other, logit)
        token = tl.where(better, other_token, token)
    top = tl.max(logit, axis=0)
    best = tl.min(tl.where(logit == top, token, 2147483647), axis=0)
    best = tl.minimum(best, last_id)  # whatever NaN weights make of it, an id of the vocabulary

    position, last, done = tl.load(state + AT_POSITION), tl.load(state + AT_LAST), tl.load(state + AT_DONE)
    if done == 0:
        tl.store(tokens + position + 1, best)
        ends = (best == eos) | (position + 1 >= last)
        tl.store(state + AT_DONE, ends.to(tl.int32))
        # The last token is never fed back: its position is not entered.
        if not ends:
            tl.store(state + AT_POSITION, position + 1)


def head_programs(vocabulary: int, launch: Launch) -> int:
    """N: how many candidates `best_of_rows` leaves."""
    return -(-vocabulary // launch.rows)


def best_of_rows(
    x: Tensor,
    gain: Tensor,
    head: Tensor,
    banned_at: Tensor,
    state: Tensor,
    best_logit: Tensor,
    best_token: Tensor,
    eps: float,
    launch: Launch,
) -> None:
    """Write each program's best allowed token and its logit, N = `head_programs` of each.

    `x`, `gain` (C,), `head` (V, C), `banned_at` (V,) int32, `state` (SIZE,) int32, `best_logit` (N,) float32,
    `best_token` (N,) int32. The lowest id wins a tie. Raises ValueError when these do not fit each other.
    """
    vocabulary, width = head.shape
    programs, device = head_programs(vocabulary, launch), x.device
    expect_all(x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), head=(head, (vocabulary, width)))
    expect("banned_at", banned_at, (vocabulary,), torch.int32, device)
    expect("state", state, (SIZE,), torch.int32, device)
    expect("best_logit", best_logit, (programs,), torch.float32, device)
    expect("best_token", best_token, (programs,), torch.int32, device)
    _best_of_rows[(programs,)](
        x, gain, head, banned_at, state, best_logit, best_token, eps, vocabulary,
        WIDTH=width, ROWS=launch.rows, CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def take_best(
    best_logit: Tensor,
    best_token: Tensor,
    tokens: Tensor,
    state: Tensor,
    eos: int,
    vocabulary: int,
    launch: Launch,
) -> None:
    """Append the best candidate to `tokens` (T,) int32 and move `state` on, unless the sequence is done.

    `best_logit` (N,) float32, `best_token` (N,) int32. Raises ValueError when these do not fit each other.
    """
    programs, device = best_logit.shape[0], tokens.device
    expect("best_logit", best_logit, (programs,), torch.float32, device)
    expect("best_token", best_token, (programs,), torch.int32, device)
    expect("tokens", tokens, (tokens.shape[0],), torch.int32, device)
    expect("state", state, (SIZE,), torch.int32, device)
    _take_best[(1,)](
        best_logit, best_token, tokens, state, programs, eos, vocabulary - 1,
        BLOCK=min(launch.rows, triton.next_power_of_2(programs)), **launch.options(),
    )  # fmt: skip


def logits_reference(
    x: Tensor, gain: Tensor, head: Tensor, banned_at: Tensor, state: Tensor, eps: float
) -> Tensor:
    """(V,) float32, -inf where banned."""
    logits = product_reference(head, rms_norm_reference(x, gain, eps)).to(torch.float32)
    return logits.masked_fill(banned_at == state[POSITION], float("-inf"))


def take_best_reference(logits: Tensor, tokens: Tensor, state: Tensor, eos: int) -> tuple[Tensor, Tensor]:
    """The new (tokens, state)."""
    tokens, state = tokens.clone(), state.clone()
    if not state[DONE]:
        best, after = int(logits.argmax()), int(state[POSITION]) + 1
        tokens[after] = best
        if best == eos or after >= int(state[LAST]):
            state[DONE] = 1
        else:
            state[POSITION] = after
    return tokens, state

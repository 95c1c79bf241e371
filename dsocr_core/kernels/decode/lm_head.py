# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Last two kernels of a step: the logits that may be the best, and the argmax, which becomes the next token.

Letters: C hidden size, V vocabulary, N programs of the first kernel, M lower bounds, T tokens held.

`head_bounds` has left an upper bound of every logit, -inf where the rule bans the token, and lower bounds.
Blocks of rows with an upper bound at or above the highest lower bound are computed, the others never read. A
program writes only the best of its rows. A banned token carries this step's stamp (`embed_token`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect_all, row_blocks
from dsocr_core.kernels.matvec import dot_rows, load_rows, load_vector, product_reference, rounded
from dsocr_core.kernels.rms_norm import rms_norm_reference
from dsocr_core.kernels.state import AT_DONE, AT_LAST, AT_POSITION, POSITION, SIZE


@triton.jit
def _best_of_bounded(
    normed_x, head, banned_at, state, lower, upper, best_logit, best_token, vocabulary, bounds,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, BOUNDS: tl.constexpr, BLOCKS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = normed_x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    program, programs = tl.program_id(0), tl.num_programs(0)
    number, every = tl.arange(0, BLOCKS), tl.arange(0, BOUNDS)
    # The first kernel of the step wrote the stamps, the step before the position.
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")
    own = (program + number * programs)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]

    await_previous(PDL)
    highest = tl.load(upper + own, mask=own < vocabulary, other=float("-inf"), cache_modifier=".cg")
    lowest = tl.load(lower + every, mask=every < bounds, other=float("-inf"), cache_modifier=".cg")
    y = load_vector(normed_x, WIDTH, CHUNK)
    reach = (own < vocabulary) & (highest >= tl.max(lowest, axis=0))
    waiting = tl.where(tl.max(reach.to(tl.int32), axis=1) > 0, number, BLOCKS)
    logit = tl.full((), float("-inf"), tl.float32)
    token = tl.full((), 2147483647, tl.int32)
    block = tl.min(waiting, axis=0)
    while block < BLOCKS:
        first = (program + block * programs) * ROWS
        row = first + tl.arange(0, ROWS)
        live = row < vocabulary
        rows = load_rows(head + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
        banned = tl.load(banned_at + row, mask=live, other=0, cache_modifier=".cg")
        logits = rounded(dot_rows(rows, y, COUNT, ROWS, CHUNK), DTYPE)
        allowed = tl.where(live & (banned != position), logits, float("-inf"))
        best, index = tl.max(allowed, axis=0, return_indices=True, return_indices_tie_break_left=True)
        # Blocks come in order, so the lowest id of equal logits comes first.
        better = (best > logit) | (token == 2147483647)
        token = tl.where(better, (first + index).to(tl.int32), token)
        logit = tl.where(better, best, logit)
        waiting = tl.where(number == block, BLOCKS, waiting)
        block = tl.min(waiting, axis=0)
    tl.store(best_logit + program, logit)
    tl.store(best_token + program, token)


@triton.jit
def _take_best(
    best_logit, best_token, tokens, logits, state, count, eos, last_id, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    await_previous(PDL)
    lane = tl.arange(0, BLOCK)
    # A lane goes through the programs in order and so keeps the lowest id of equal logits.
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
    best = tl.minimum(best, last_id)  # an id of the vocabulary, even where weights are NaN

    position, last, done = tl.load(state + AT_POSITION), tl.load(state + AT_LAST), tl.load(state + AT_DONE)
    if done == 0:
        tl.store(tokens + position + 1, best)
        tl.store(logits + position + 1, top)
        ends = (best == eos) | (position + 1 >= last)
        tl.store(state + AT_DONE, ends.to(tl.int32))
        # The last token is never fed back, so the position stays.
        if not ends:
            tl.store(state + AT_POSITION, position + 1)


def best_of_bounded(
    normed_x: Tensor,
    head: Tensor,
    banned_at: Tensor,
    state: Tensor,
    lower: Tensor,
    upper: Tensor,
    best_logit: Tensor,
    best_token: Tensor,
    launch: Launch,
) -> None:
    """Write each program's best allowed token and its logit, in as many programs as `best_logit` holds.

    `normed_x` (C,) as `head_bounds.split_vector` writes it, `head` (V, C), `banned_at` (V,) int32, `state`
    (SIZE,) int32, `lower` (M,) and `upper` (V,) float32 as `head_bounds.bound_rows` writes them, `best_logit`
    (N,) float32, `best_token` (N,) int32. The lowest id wins a tie. A program of which no row is left writes
    -inf and an id past the vocabulary.
    """
    (vocabulary, width), programs = head.shape, best_logit.shape[0]
    bounds, device = lower.shape[0], head.device
    blocks = triton.cdiv(row_blocks(vocabulary, launch), programs)
    expect_all(head.dtype, device, normed_x=(normed_x, (width,)), head=(head, (vocabulary, width)))
    expect_all(
        torch.int32, device, banned_at=(banned_at, (vocabulary,)), state=(state, (SIZE,)),
        best_token=(best_token, (programs,)),
    )  # fmt: skip
    best = best_logit, (programs,)
    expect_all(torch.float32, device, lower=(lower, (bounds,)), upper=(upper, (vocabulary,)), best_logit=best)
    _best_of_bounded[(programs,)](
        normed_x, head, banned_at, state, lower, upper, best_logit, best_token, vocabulary, bounds,
        WIDTH=width, ROWS=launch.rows, CHUNK=chunk_width(width),
        BOUNDS=triton.next_power_of_2(bounds), BLOCKS=triton.next_power_of_2(blocks),
        **launch.options(),
    )  # fmt: skip


def take_best(
    best_logit: Tensor,
    best_token: Tensor,
    tokens: Tensor,
    logits: Tensor,
    state: Tensor,
    eos: int,
    vocabulary: int,
    launch: Launch,
) -> None:
    """Append the best candidate to `tokens` (T,) int32 and move `state` on, unless the sequence is done.

    Its logit goes to `logits` (T,) float32. `best_logit` (N,) float32, `best_token` (N,) int32.
    """
    programs, device = best_logit.shape[0], tokens.device
    best, positions = (programs,), (tokens.shape[0],)
    expect_all(torch.float32, device, best_logit=(best_logit, best), logits=(logits, positions))
    expect_all(
        torch.int32, device, best_token=(best_token, best), tokens=(tokens, positions), state=(state, (SIZE,))
    )
    _take_best[(1,)](
        best_logit, best_token, tokens, logits, state, programs, eos, vocabulary - 1,
        BLOCK=min(launch.rows, triton.next_power_of_2(programs)), **launch.options(),
    )  # fmt: skip


def logits_reference(
    x: Tensor, gain: Tensor, head: Tensor, banned_at: Tensor, state: Tensor, eps: float
) -> Tensor:
    """Reference in plain torch. Returns all logits (V,) float32, -inf where banned."""
    logits = product_reference(head, rms_norm_reference(x, gain, eps)).to(torch.float32)
    return logits.masked_fill(banned_at == state[POSITION], float("-inf"))

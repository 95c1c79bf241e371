# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention of each slot's rows over that slot's own positions, split between programs.

Letters: S slots, K rows a slot, R = K S, h heads, D head dim, P positions a slot's cache holds, N splits,
p a row's position.

A program takes one head of one slot and one of N equal parts of the positions up to p, or of all that the
cache has once a ring is full. Every lane of its block has a softmax of its own over every `rows`-th position,
so that inside the loop only the product of query and key crosses threads; the lanes are merged once, at the
end. It is bound by reading the cache: 2 h D (p + 1) elements a slot, once.

Rows of a slot (row r S + s is r tokens ahead of slot s's current one) share a program, which reads the cache
once for all. Each row has its own parts, softmax and order of sums: those that it has alone. Most blocks
belong to all rows; where one belongs to some only, it has no weight for the others, and adds nothing. In a
ring with places to spare rows find some slots in other places than each other, and each row reads its own.

Keys, values or both may be 8-bit floats (e4m3) with a scale for each slot and head: a query takes its keys'
scale, an average its values'.

Offsets into the cache are 64 bits wide: 256 slots of the published model are more than 2^31 elements.
Programs return early for a finished slot; its output is zeros.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.batch.scales import NO_SCALES, Scales, expect_cache
from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all, overlapping
from dsocr_core.kernels.matvec import extended
from dsocr_core.kernels.state import (
    AT_PROMPT,
    AT_SIZE,
    SIZE,
    place,
    standing,
    standing_reference,
    stored,
    stored_reference,
)

MOST_TOGETHER = 4
"""Rows of a program at most: with more their sums do not fit the registers."""


@triton.jit
def _folded(scores, value, inside, top, total, mixed):
    """A block's positions taken into the softmax of each lane: (top, total, mixed)."""
    scores = tl.where(inside, scores, float("-inf"))
    new_top = tl.maximum(top, scores)
    # A lane without positions on either side would make -inf - -inf.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    shrink = tl.exp2(top - shift)
    weight = tl.exp2(scores - shift)
    return new_top, total * shrink + weight, mixed * shrink[:, None] + weight[:, None] * value


@triton.jit
def _with_block(
    block, keys, values, first, stop, queries, starts, ends, owns, position, prompt, top, total, mixed,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    RING: tl.constexpr, SPARE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """The rows' softmaxes with one block of positions more, which is all of it every row's where SHARED."""
    dims, n = tl.arange(0, EVERY_DIM), block + tl.arange(0, BLOCK)
    at = first + n[:, None] * HEAD_DIM + dims[None, :]
    mask = (dims < HEAD_DIM)[None, :]
    if not SHARED:
        mask = (n < stop)[:, None] & mask
    if SPARE == 0:
        key = tl.load(keys + at, mask=mask, other=0.0)
        value = tl.load(values + at, mask=mask, other=0.0)
    tops, totals, mixes = (), (), ()
    for r in tl.static_range(ROWS):
        inside = (n >= starts[r]) & (n < ends[r])
        if SPARE:
            where = stored(n, owns[r], position + r, prompt, RING, SPARE)
            at = first + where[:, None] * HEAD_DIM + dims[None, :]
            mask = inside[:, None] & (dims < HEAD_DIM)[None, :]
            key = tl.load(keys + at, mask=mask, other=0.0)
            value = tl.load(values + at, mask=mask, other=0.0)
        scores = tl.sum(key.to(tl.float32) * queries[r][None, :], axis=1)
        weighed = value.to(tl.float32)
        if SHARED:
            inside = n >= 0
        elif ROWS > 1:  # another row's position may hold anything
            weighed = tl.where(inside[:, None], weighed, 0.0)
        one, two, three = _folded(scores, weighed, inside, top[r], total[r], mixed[r])
        tops, totals, mixes = extended(tops, one), extended(totals, two), extended(mixes, three)
    return tops, totals, mixes


@triton.jit
def _attend_rows(
    q, keys, values, states, partial, log_sums, scale, capacity, slots, key_scales, value_scales,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, RING: tl.constexpr, SPARE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    head, split = tl.program_id(0), tl.program_id(1)
    heads, splits = tl.num_programs(0), tl.num_programs(1)
    # Programs of one slot's rows stand side by side: what one reads the other finds in the L2 cache.
    groups = tl.num_programs(2) // slots
    slot, ahead = tl.program_id(2) // groups, tl.program_id(2) % groups * ROWS
    dims = tl.arange(0, EVERY_DIM)
    if key_scales is not None:
        scale *= tl.load(key_scales + slot * heads + head)
    begin, stop = capacity, 0
    all_from, all_to = 0, capacity
    starts, ends, owns, queries = (), (), (), ()
    top, total, mixed = (), (), ()
    for r in tl.static_range(ROWS):
        position, live = standing(states, slot, ahead + r)
        own, before = place(position, states + slot * AT_SIZE, RING)
        held = tl.where(live, tl.maximum(own + 1, before), 0)
        share = tl.cdiv(tl.cdiv(held, splits), BLOCK) * BLOCK
        start = tl.minimum(split * share, held)
        end = tl.minimum(start + share, held)
        some = end > start  # else its start may lie within a block
        begin = tl.where(some, tl.minimum(begin, start), begin)
        stop = tl.where(some, tl.maximum(stop, end), stop)
        all_from = tl.where(some, tl.maximum(all_from, start), all_from)
        all_to = tl.where(some, tl.minimum(all_to, end), 0)
        starts, ends, owns = extended(starts, start), extended(ends, end), extended(owns, own)
        row = ((ahead + r) * slots + slot) * heads + head
        query = tl.load(q + row * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0)
        queries = extended(queries, query.to(tl.float32) * scale)
        top = extended(top, tl.full([BLOCK], float("-inf"), tl.float32))
        total = extended(total, tl.zeros([BLOCK], tl.float32))
        mixed = extended(mixed, tl.zeros([BLOCK, EVERY_DIM], tl.float32))

    first_position, _ = standing(states, slot, ahead)
    prompt = tl.load(states + slot * AT_SIZE + AT_PROMPT)
    if SPARE:
        all_to = tl.minimum(all_to, prompt)  # only the prompt's blocks are in one place for all rows
    first = (slot * heads + head).to(tl.int64) * capacity * HEAD_DIM
    # Parts begin at whole blocks. In turn: blocks before every row's part, those of all, the rest.
    for before in range(begin, tl.minimum(all_from, stop), BLOCK):
        top, total, mixed = _with_block(
            before,
            keys,
            values,
            first,
            stop,
            queries,
            starts,
            ends,
            owns,
            first_position,
            prompt,
            top,
            total,
            mixed,
            HEAD_DIM,
            EVERY_DIM,
            BLOCK,
            ROWS,
            RING,
            SPARE,
            False,
        )
    whole = all_from + tl.maximum(all_to - all_from, 0) // BLOCK * BLOCK
    for block in tl.range(all_from, whole, BLOCK, num_stages=STAGES):
        top, total, mixed = _with_block(
            block,
            keys,
            values,
            first,
            stop,
            queries,
            starts,
            ends,
            owns,
            first_position,
            prompt,
            top,
            total,
            mixed,
            HEAD_DIM,
            EVERY_DIM,
            BLOCK,
            ROWS,
            RING,
            0,
            True,
        )
    for after in range(tl.maximum(whole, begin), stop, BLOCK):
        top, total, mixed = _with_block(
            after,
            keys,
            values,
            first,
            stop,
            queries,
            starts,
            ends,
            owns,
            first_position,
            prompt,
            top,
            total,
            mixed,
            HEAD_DIM,
            EVERY_DIM,
            BLOCK,
            ROWS,
            RING,
            SPARE,
            False,
        )

    for r in tl.static_range(ROWS):
        best = tl.max(top[r], axis=0)
        part = tl.exp2(top[r] - tl.where(best == float("-inf"), 0.0, best))
        total_all = tl.sum(total[r] * part, axis=0)
        # A split without positions has no weight: an average of 0 and a maximum of -inf.
        total_all = tl.where(total_all == 0.0, 1.0, total_all)
        average = tl.sum(mixed[r] * part[:, None], axis=0) / total_all
        if value_scales is not None:
            average *= tl.load(value_scales + slot * heads + head)
        out = (((ahead + r) * slots + slot) * splits + split) * heads + head
        tl.store(partial + out * HEAD_DIM + dims, average, mask=dims < HEAD_DIM)
        tl.store(log_sums + out, best + tl.log2(total_all))


@triton.jit
def _join_rows(
    partial, log_sums, mixed,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, SPLITS: tl.constexpr, EVERY_SPLIT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    DTYPE: tl.constexpr = mixed.dtype.element_ty
    head, slot = tl.program_id(0), tl.program_id(1)
    heads = tl.num_programs(0)
    dims, split = tl.arange(0, EVERY_DIM), tl.arange(0, EVERY_SPLIT)
    row = (slot * SPLITS + split) * heads + head
    log_sum = tl.load(log_sums + row, mask=split < SPLITS, other=float("-inf"))
    best = tl.max(log_sum, axis=0)
    weight = tl.exp2(log_sum - tl.where(best == float("-inf"), 0.0, best))
    total = tl.sum(weight, axis=0)
    mask = (split < SPLITS)[:, None] & (dims < HEAD_DIM)[None, :]
    averages = tl.load(partial + row[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
    out = tl.sum(averages * weight[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    at = (slot * heads + head) * HEAD_DIM + dims
    tl.store(mixed + at, out.to(DTYPE), mask=dims < HEAD_DIM)


def attend_rows(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    states: Tensor,
    partial: Tensor,
    log_sums: Tensor,
    launch: Launch,
    stages: int = 2,
    together: int = MOST_TOGETHER,
    ring: int = 0,
    scales: Scales = NO_SCALES,
    spare: int = 0,
) -> None:
    """Write each part's average to `partial` (R, N, h, D) and its weight to `log_sums` (R, N, h), float32.

    `q` (R, h, D), `keys` and `values` (S, h, P, D), `states` (S, SIZE) int32; `launch.rows` positions are
    read at a time, `stages` of them in flight, for `together` rows of a slot; `ring` slots behind each prompt
    are taken in turn, and have `spare` places more in memory; `scales` (S, h) float32 are those of keys and
    of values that are float8_e4m3fn. Raises ValueError when these do not fit each other.
    """
    _check(q, keys, values, states, partial, log_sums, scales)
    slots, heads, capacity, head_dim = keys.shape
    scale, each = math.log2(math.e) / math.sqrt(head_dim), min(together, len(q) // slots)
    _attend_rows[(heads, partial.shape[1], len(q) // each)](
        q, keys, values, states, partial, log_sums, scale, capacity, slots, *scales,
        HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), BLOCK=launch.rows, STAGES=stages,
        ROWS=each, RING=ring, SPARE=spare, num_warps=launch.warps, **overlapping(q.device),
    )  # fmt: skip


def attend_rows_reference(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    states: Tensor,
    partial: Tensor,
    log_sums: Tensor,
    launch: Launch | None = None,
    stages: int = 2,
    together: int = MOST_TOGETHER,
    ring: int = 0,
    scales: Scales = NO_SCALES,
    spare: int = 0,
) -> None:
    """All of a row's positions as its first part; the other parts stay empty."""
    _check(q, keys, values, states, partial, log_sums, scales)
    partial.zero_()
    log_sums.fill_(float("-inf"))
    _, live = standing_reference(states, len(q))
    for row in live.nonzero()[:, 0].tolist():
        slot = row % len(states)
        seen = stored_reference(states[slot], ring, spare, row // len(states))
        key, value = (
            half[slot, :, seen].float() * (1 if scale is None else scale[slot, :, None, None])
            for half, scale in zip((keys, values), scales, strict=True)
        )  # (h, p + 1, D)
        scores = torch.einsum("hd,hpd->hp", q[row].float(), key) / math.sqrt(q.shape[-1])  # (h, p + 1)
        partial[row, 0] = torch.einsum("hp,hpd->hd", scores.softmax(dim=-1), value)
        log_sums[row, 0] = scores.logsumexp(dim=-1) / math.log(2)


def join_rows(partial: Tensor, log_sums: Tensor, mixed: Tensor, launch: Launch) -> None:
    """Weigh the parts together: `partial` (R, N, h, D), `log_sums` (R, N, h) into `mixed` (R, h D).

    Raises ValueError when these do not fit each other.
    """
    _check_join(partial, log_sums, mixed)
    slots, splits, heads, head_dim = partial.shape
    _join_rows[(heads, slots)](
        partial, log_sums, mixed,
        HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), SPLITS=splits,
        EVERY_SPLIT=triton.next_power_of_2(splits), num_warps=launch.warps, **overlapping(mixed.device),
    )  # fmt: skip


def join_rows_reference(
    partial: Tensor, log_sums: Tensor, mixed: Tensor, launch: Launch | None = None
) -> None:
    """The same in plain torch."""
    _check_join(partial, log_sums, mixed)
    weights = torch.softmax(log_sums * math.log(2), dim=1).nan_to_num(0.0)  # (S, N, h)
    mixed.copy_((partial * weights.unsqueeze(-1)).sum(dim=1).view_as(mixed))


def _check(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    states: Tensor,
    partial: Tensor,
    log_sums: Tensor,
    scales: Scales,
) -> None:
    slots, heads, _, head_dim = keys.shape
    rows, splits = len(q), partial.shape[1]
    if not rows or rows % slots:
        raise ValueError(f"{rows} rows for {slots} slots")
    expect_all(q.dtype, q.device, q=(q, (rows, heads, head_dim)))
    expect_cache(q, keys, values, scales)
    expect("states", states, (slots, SIZE), torch.int32, q.device)
    expect("partial", partial, (rows, splits, heads, head_dim), torch.float32, q.device)
    expect("log_sums", log_sums, (rows, splits, heads), torch.float32, q.device)


def _check_join(partial: Tensor, log_sums: Tensor, mixed: Tensor) -> None:
    slots, splits, heads, head_dim = partial.shape
    expect_all(mixed.dtype, mixed.device, mixed=(mixed, (slots, heads * head_dim)))
    expect("partial", partial, (slots, splits, heads, head_dim), torch.float32, mixed.device)
    expect("log_sums", log_sums, (slots, splits, heads), torch.float32, mixed.device)

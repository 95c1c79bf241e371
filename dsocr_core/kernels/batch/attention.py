# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention of each slot's rows over that slot's own positions, split between programs.

Letters: S slots, K rows a slot, R = K S, h heads, D head dim, P positions a slot's cache holds, N splits,
p a row's position.

A program takes one head of one slot and one of N equal parts of the positions up to p, or of all that the
cache has once a ring is full. It is bound by reading the cache: 2 h D (p + 1) elements a slot, once.

Rows of a slot (row r S + s is r tokens ahead of slot s's current one) share a program, which reads the cache
once for all. They are rows of a tile of the matrix units, which has room for 16 whether there is one or more:
a row's sums are the same wherever it stands and whatever the others are. Each row has its own parts and
softmax. Most blocks belong to all rows; where one belongs to some only, it has no weight for the others, and
adds nothing. In a ring with places to spare rows find some slots in other places than each other, and each
row reads its own.

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
from dsocr_core.kernels.state import (
    AT_POSITION,
    AT_PROMPT,
    AT_SIZE,
    SIZE,
    place,
    row_position,
    row_position_reference,
    stored,
    stored_reference,
)

TILE = 16
"""Rows of a tile of the matrix units, and the most rows of a slot."""


@triton.jit
def _folded(query, key, value, inside, scale, top, total, mixed, CLEAN: tl.constexpr):
    """Update the softmaxes with a block of positions; `inside` (TILE, BLOCK) has those that each row sees."""
    # 8-bit numbers become float16 with one instruction for two; bfloat16 would take six.
    NARROW: tl.constexpr = tl.float16 if query.dtype == tl.bfloat16 else query.dtype
    if key.dtype != query.dtype:
        query, key = query.to(NARROW), key.to(NARROW)
    if value.dtype == tl.float8e4nv:
        value = value.to(NARROW)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    scores = tl.where(inside, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    # Without positions on either side this would be -inf - -inf.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    shrink, weight = tl.exp2(top - shift), tl.exp2(scores - shift[:, None])
    if not CLEAN:  # another row's position may hold NaN, which only rows that see it may get
        good = tl.abs(value.to(tl.float32)) < float("inf")
        broken = tl.dot(
            inside.to(value.dtype), (1 - good.to(tl.int32)).to(value.dtype), input_precision="ieee"
        )
        value = tl.where(good, value, 0.0)
        mixed = tl.where(broken > 0, float("nan"), mixed)
    mixed = tl.dot(weight.to(value.dtype), value, mixed * shrink[:, None], input_precision="ieee")
    return new_top, total * shrink + tl.sum(weight, axis=1), mixed


@triton.jit
def _attend_rows(
    q, keys, values, states, partial, log_sums, scale, capacity, slots, key_scales, value_scales,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, RING: tl.constexpr, SPARE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    head, split, slot = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads, splits = tl.num_programs(0), tl.num_programs(1)
    dims, row = tl.arange(0, EVERY_DIM), tl.arange(0, TILE)
    real = (dims < HEAD_DIM)[None, :]
    state = states + slot * AT_SIZE
    if key_scales is not None:
        scale *= tl.load(key_scales + slot * heads + head)
    position, live = row_position(states, slot, row)
    own, before = place(position, state, RING)
    length = tl.where(live & (row < ROWS), tl.maximum(own + 1, before), 0)
    share = tl.cdiv(tl.cdiv(length, splits), BLOCK) * BLOCK  # parts begin at whole blocks
    start = tl.minimum(split * share, length)
    end = tl.minimum(start + share, length)
    some = end > start  # otherwise its start may lie within a block
    begin, stop = tl.min(tl.where(some, start, capacity), axis=0), tl.max(tl.where(some, end, 0), axis=0)
    all_from = tl.max(tl.where(some, start, 0), axis=0)
    all_to = tl.minimum(tl.min(tl.where(some, end, capacity), axis=0), stop)
    first_position, prompt = tl.load(state + AT_POSITION), tl.load(state + AT_PROMPT)
    if SPARE and ROWS > 1:
        all_to = tl.minimum(all_to, prompt)  # only the prompt's blocks are in one place for all rows
    asked = ((row * slots + slot) * heads + head)[:, None] * HEAD_DIM + dims[None, :]
    query = tl.load(q + asked, mask=(row < ROWS)[:, None] & real, other=0.0)
    top, total = tl.full([TILE], float("-inf"), tl.float32), tl.zeros([TILE], tl.float32)
    mixed = tl.zeros([TILE, EVERY_DIM], tl.float32)
    first = (slot * heads + head).to(tl.int64) * capacity * HEAD_DIM
    first_slot, _ = place(first_position, state, RING)
    last_slot, _ = place(first_position + ROWS - 1, state, RING)
    # In order: blocks before the common part, those of all rows, the rest.
    whole = all_from + tl.maximum(all_to - all_from, 0) // BLOCK * BLOCK
    SIDES: tl.constexpr = 1 if ROWS > 1 else 0
    for part in tl.static_range(-SIDES, SIDES + 1):
        low, high = begin, tl.minimum(all_from, stop)
        if ROWS == 1:
            low, high = begin, stop
        elif part == 0:
            low, high = all_from, whole
        elif part == 1:
            low, high = tl.maximum(whole, begin), stop
        for block in tl.range(low, high, BLOCK, num_stages=STAGES if part == 0 else 1):
            n = block + tl.arange(0, BLOCK)
            where, mask, seen = n, real, some[:, None] & (n >= 0)[None, :]
            if ROWS == 1 or part != 0:
                where = stored(n, first_slot, first_position, prompt, RING, SPARE)
                mask = (n < stop)[:, None] & real
                seen = (n[None, :] >= start[:, None]) & (n[None, :] < end[:, None])
            if part == 0 or SPARE == 0:
                at = first + where[:, None] * HEAD_DIM + dims[None, :]
                key = tl.load(keys + at, mask=mask, other=0.0)
                value = tl.load(values + at, mask=mask, other=0.0)
                top, total, mixed = _folded(query, key, value, seen, scale, top, total, mixed, part == 0)
            else:
                # If the last row finds what the first does, all between do: one turn for all, else one each.
                last = stored(n, last_slot, first_position + ROWS - 1, prompt, RING, SPARE)
                turns = tl.where(tl.max((where != last).to(tl.int32), axis=0) > 0, ROWS, 1)
                for turn in tl.range(0, turns, num_stages=1):
                    inside = seen & ((row == turn) | (turns == 1))[:, None]
                    turn_slot, _ = place(first_position + turn, state, RING)
                    where = stored(n, turn_slot, first_position + turn, prompt, RING, SPARE)
                    mask = (tl.max(inside.to(tl.int32), axis=0) > 0)[:, None] & real
                    at = first + where[:, None] * HEAD_DIM + dims[None, :]
                    key = tl.load(keys + at, mask=mask, other=0.0)
                    value = tl.load(values + at, mask=mask, other=0.0)
                    top, total, mixed = _folded(query, key, value, inside, scale, top, total, mixed, False)

    # A part without positions has no weight: an average of 0 and a maximum of -inf.
    average = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    if value_scales is not None:
        average *= tl.load(value_scales + slot * heads + head)
    out = ((row * slots + slot) * splits + split) * heads + head
    tl.store(partial + out[:, None] * HEAD_DIM + dims[None, :], average, mask=(row < ROWS)[:, None] & real)
    tl.store(log_sums + out, top + tl.log2(tl.where(total == 0.0, 1.0, total)), mask=row < ROWS)


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
    ring: int = 0,
    scales: Scales = NO_SCALES,
    spare: int = 0,
) -> None:
    """Write each part's average to `partial` (R, N, h, D) and its weight to `log_sums` (R, N, h), float32.

    `q` (R, h, D), `keys` and `values` (S, h, P, D), `states` (S, SIZE) int32; `launch.rows` positions are
    read at a time, 16 at least, `stages` of them in flight; `ring` slots behind each prompt are taken in
    turn, and have `spare` places more in memory; `scales` (S, h) float32 are those of keys and of values that
    are float8_e4m3fn.
    """
    slots, heads, capacity, head_dim = keys.shape
    rows, splits = len(q), partial.shape[1]
    if not rows or rows % slots or rows > TILE * slots:
        raise ValueError(f"{rows} rows for {slots} slots")
    expect_all(q.dtype, q.device, q=(q, (rows, heads, head_dim)))
    expect_cache(q, keys, values, scales)
    expect("states", states, (slots, SIZE), torch.int32, q.device)
    expect("partial", partial, (rows, splits, heads, head_dim), torch.float32, q.device)
    expect("log_sums", log_sums, (rows, splits, heads), torch.float32, q.device)
    scale = math.log2(math.e) / math.sqrt(head_dim)
    _attend_rows[(heads, splits, slots)](
        q, keys, values, states, partial, log_sums, scale, capacity, slots, *scales,
        HEAD_DIM=head_dim, EVERY_DIM=max(16, triton.next_power_of_2(head_dim)), BLOCK=launch.rows,
        STAGES=stages, ROWS=rows // slots, TILE=TILE, RING=ring, SPARE=spare, num_warps=launch.warps,
        **overlapping(q.device),
    )  # fmt: skip


def attend_rows_reference(
    q, keys, values, states, partial, log_sums, launch=None, stages=2, ring=0, scales=NO_SCALES, spare=0
):
    """Reference in plain torch. All of a row's positions are its first part; the other parts are empty."""
    partial.zero_()
    log_sums.fill_(float("-inf"))
    _, live = row_position_reference(states, len(q))
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
    """Weigh the parts together: `partial` (R, N, h, D), `log_sums` (R, N, h) into `mixed` (R, h D)."""
    slots, splits, heads, head_dim = partial.shape
    expect_all(mixed.dtype, mixed.device, mixed=(mixed, (slots, heads * head_dim)))
    expect("partial", partial, (slots, splits, heads, head_dim), torch.float32, mixed.device)
    expect("log_sums", log_sums, (slots, splits, heads), torch.float32, mixed.device)
    _join_rows[(heads, slots)](
        partial, log_sums, mixed,
        HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), SPLITS=splits,
        EVERY_SPLIT=triton.next_power_of_2(splits), num_warps=launch.warps, **overlapping(mixed.device),
    )  # fmt: skip


def join_rows_reference(partial, log_sums, mixed, launch=None):
    """Reference in plain torch."""
    weights = torch.softmax(log_sums * math.log(2), dim=1).nan_to_num(0.0)  # (S, N, h)
    mixed.copy_((partial * weights.unsqueeze(-1)).sum(dim=1).view_as(mixed))

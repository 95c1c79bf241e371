# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention of one query a slot over that slot's own positions, split between programs.

Letters: S slots, h heads, D head dim, P positions a slot's cache holds, N splits, p a slot's position.

A program takes one head of one slot and one of N equal parts of the positions up to p, or of all that the
cache has once a ring is full. Every lane of its block has a softmax of its own over every `rows`-th position,
so that inside the loop only the product of query and key crosses threads; the lanes are merged once, at the
end. It is bound by reading the cache: 2 h D (p + 1) elements a slot, once.

Offsets into the cache are 64 bits wide: 256 slots of the published model are more than 2^31 elements.
Programs return early for a finished slot; its output is zeros.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, expect, expect_all
from dsocr_core.kernels.state import AT_DONE, AT_POSITION, AT_SIZE, DONE, SIZE, place, place_reference


@triton.jit
def _attend_rows(
    q, keys, values, states, partial, log_sums, scale, capacity,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    RING: tl.constexpr,
):  # fmt: skip
    head, split, slot = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads, splits = tl.num_programs(0), tl.num_programs(1)
    position = tl.load(states + slot * AT_SIZE + AT_POSITION)
    done = tl.load(states + slot * AT_SIZE + AT_DONE)
    own, before = place(position, states + slot * AT_SIZE, RING)
    held = tl.where(done == 0, tl.maximum(own + 1, before), 0)
    share = tl.cdiv(tl.cdiv(held, splits), BLOCK) * BLOCK
    start = tl.minimum(split * share, held)
    end = tl.minimum(start + share, held)
    dims = tl.arange(0, EVERY_DIM)
    row = slot * heads + head
    query = tl.load(q + row * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32) * scale
    first = row.to(tl.int64) * capacity * HEAD_DIM

    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixed = tl.zeros([BLOCK, EVERY_DIM], tl.float32)
    for block in tl.range(start, end, BLOCK, num_stages=STAGES):
        n = block + tl.arange(0, BLOCK)
        at = first + n[:, None] * HEAD_DIM + dims[None, :]
        mask = (n < end)[:, None] & (dims < HEAD_DIM)[None, :]
        key = tl.load(keys + at, mask=mask, other=0.0)
        value = tl.load(values + at, mask=mask, other=0.0)
        scores = tl.sum(key.to(tl.float32) * query[None, :], axis=1)
        scores = tl.where(n < end, scores, float("-inf"))
        new_top = tl.maximum(top, scores)
        # A lane without positions on either side would make -inf - -inf.
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        shrink = tl.exp2(top - shift)
        weight = tl.exp2(scores - shift)
        total = total * shrink + weight
        mixed = mixed * shrink[:, None] + weight[:, None] * value.to(tl.float32)
        top = new_top

    best = tl.max(top, axis=0)
    part = tl.exp2(top - tl.where(best == float("-inf"), 0.0, best))
    total_all = tl.sum(total * part, axis=0)
    # A split without positions has no weight: an average of 0 and a maximum of -inf.
    total_all = tl.where(total_all == 0.0, 1.0, total_all)
    average = tl.sum(mixed * part[:, None], axis=0) / total_all
    out = (slot * splits + split) * heads + head
    tl.store(partial + out * HEAD_DIM + dims, average, mask=dims < HEAD_DIM)
    tl.store(log_sums + out, best + tl.log2(total_all))


@triton.jit
def _join_rows(
    partial, log_sums, mixed,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, SPLITS: tl.constexpr, EVERY_SPLIT: tl.constexpr,
):  # fmt: skip
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
) -> None:
    """Write each part's average to `partial` (S, N, h, D) and its weight to `log_sums` (S, N, h), float32.

    `q` (S, h, D), `keys` and `values` (S, h, P, D), `states` (S, SIZE) int32; `launch.rows` positions are
    read at a time, `stages` of them in flight; `ring` slots behind each prompt are taken in turn. Raises
    ValueError when these do not fit each other.
    """
    _check(q, keys, values, states, partial, log_sums)
    slots, heads, capacity, head_dim = keys.shape
    scale = math.log2(math.e) / math.sqrt(head_dim)
    _attend_rows[(heads, partial.shape[1], slots)](
        q, keys, values, states, partial, log_sums, scale, capacity,
        HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), BLOCK=launch.rows, STAGES=stages,
        RING=ring, num_warps=launch.warps,
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
    ring: int = 0,
) -> None:
    """All of a slot's positions as its first part; the other parts stay empty."""
    _check(q, keys, values, states, partial, log_sums)
    partial.zero_()
    log_sums.fill_(float("-inf"))
    for slot, state in enumerate(states.cpu()):
        if state[DONE]:
            continue
        own, before = place_reference(state, ring)
        held = max(own + 1, before)
        key, value = keys[slot, :, :held].float(), values[slot, :, :held].float()  # (h, p + 1, D)
        scores = torch.einsum("hd,hpd->hp", q[slot].float(), key) / math.sqrt(q.shape[-1])  # (h, p + 1)
        partial[slot, 0] = torch.einsum("hp,hpd->hd", scores.softmax(dim=-1), value)
        log_sums[slot, 0] = scores.logsumexp(dim=-1) / math.log(2)


def join_rows(partial: Tensor, log_sums: Tensor, mixed: Tensor, launch: Launch) -> None:
    """Weigh the parts together: `partial` (S, N, h, D), `log_sums` (S, N, h) into `mixed` (S, h D).

    Raises ValueError when these do not fit each other.
    """
    _check_join(partial, log_sums, mixed)
    slots, splits, heads, head_dim = partial.shape
    _join_rows[(heads, slots)](
        partial, log_sums, mixed,
        HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), SPLITS=splits,
        EVERY_SPLIT=triton.next_power_of_2(splits), num_warps=launch.warps,
    )  # fmt: skip


def join_rows_reference(
    partial: Tensor, log_sums: Tensor, mixed: Tensor, launch: Launch | None = None
) -> None:
    """The same in plain torch."""
    _check_join(partial, log_sums, mixed)
    weights = torch.softmax(log_sums * math.log(2), dim=1).nan_to_num(0.0)  # (S, N, h)
    mixed.copy_((partial * weights.unsqueeze(-1)).sum(dim=1).view_as(mixed))


def _check(
    q: Tensor, keys: Tensor, values: Tensor, states: Tensor, partial: Tensor, log_sums: Tensor
) -> None:
    slots, heads, capacity, head_dim = keys.shape
    splits, cache = partial.shape[1], (slots, heads, capacity, head_dim)
    expect_all(q.dtype, q.device, q=(q, (slots, heads, head_dim)), keys=(keys, cache), values=(values, cache))
    expect("states", states, (slots, SIZE), torch.int32, q.device)
    expect("partial", partial, (slots, splits, heads, head_dim), torch.float32, q.device)
    expect("log_sums", log_sums, (slots, splits, heads), torch.float32, q.device)


def _check_join(partial: Tensor, log_sums: Tensor, mixed: Tensor) -> None:
    slots, splits, heads, head_dim = partial.shape
    expect_all(mixed.dtype, mixed.device, mixed=(mixed, (slots, heads * head_dim)))
    expect("partial", partial, (slots, splits, heads, head_dim), torch.float32, mixed.device)
    expect("log_sums", log_sums, (slots, splits, heads), torch.float32, mixed.device)

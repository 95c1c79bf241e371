# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# mypy: disable-error-code="var-annotated", no-warn-unreachable
"""Attention of K rows over the one cache of their page, the positions split between programs.

Letters: K rows, h heads, D head dim, P positions the cache holds, S splits, p position of row 0.

A program has one head, one split and a group of rows. It unpacks a tile of the split once and all rows take
it, each as a decode step at its own position does: in the same order, and what lies from its position on
without weight. Past S times what is read at once a split's length depends on the position; rows of a group
whose splits differ go one after another.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.split_attention import load_tiles, newest, positions_a_part
from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all
from dsocr_core.kernels.matvec import extended, unpacked
from dsocr_core.kernels.state import AT_POSITION, SIZE


@triton.jit
def _rows_of_split(
    q, key_rows, value_rows, partial, log_sums, scale, first, position, share,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Rows `first` on, of which the first stands at `position`, over this program's split of that length."""
    AT_ONCE: tl.constexpr = TILE * TILES
    head, split, heads, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1)
    dims, places = tl.arange(0, EVERY_DIM), tl.arange(0, TILE)
    inside = dims < HEAD_DIM
    farthest = position + ROWS - 1
    start = tl.minimum(split * share, farthest)
    end = tl.minimum(start + share, farthest)
    queries, tops, totals, mixtures = (), (), (), ()
    for r in tl.static_range(ROWS):
        asked = q + ((first + r) * heads + head) * HEAD_DIM + dims
        query = tl.load(asked, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32) * scale
        own = (position + r) * HEAD_DIM + dims
        key = tl.load(key_rows + own, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        value = tl.load(value_rows + own, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        top, total, mixed = newest(query, key, value, split == 0)
        queries, tops = extended(queries, query), extended(tops, top)
        totals, mixtures = extended(totals, total), extended(mixtures, mixed)
    after = start
    going = True
    while going:
        keys = load_tiles(key_rows, after, end, HEAD_DIM, EVERY_DIM, TILE, TILES)
        scores = ()
        for t in tl.static_range(TILES):
            tile = unpacked(keys[t])
            for r in tl.static_range(ROWS):
                score = tl.sum(tile * queries[r][None, :], axis=1)
                live = after + t * TILE + places < tl.minimum(start + share, position + r)
                scores = extended(scores, tl.where(live, score, float("-inf")))
        new_tops, shifts = (), ()
        for r in tl.static_range(ROWS):
            highest = tl.full([TILE], float("-inf"), tl.float32)
            for t in tl.static_range(TILES):
                highest = tl.maximum(highest, scores[t * ROWS + r])
            new_top = tl.maximum(tops[r], tl.max(highest, axis=0))
            new_tops = extended(new_tops, new_top)
            # No positions yet on either side would make -inf - -inf.
            shifts = extended(shifts, tl.where(new_top == float("-inf"), 0.0, new_top))
        values = load_tiles(value_rows, after, end, HEAD_DIM, EVERY_DIM, TILE, TILES)
        sums, mixed_tiles = (), ()
        for _ in tl.static_range(ROWS):
            sums = extended(sums, tl.zeros([TILE], tl.float32))
            mixed_tiles = extended(mixed_tiles, tl.zeros([TILE, EVERY_DIM], tl.float32))
        for t in tl.static_range(TILES):
            tile = unpacked(values[t])
            more_sums, more_tiles = (), ()
            for r in tl.static_range(ROWS):
                weights = tl.exp2(scores[t * ROWS + r] - shifts[r])
                live = after + t * TILE + places < tl.minimum(start + share, position + r)
                # A later row's values may be anything: they have no weight, and are no numbers perhaps.
                some = tl.where(live[:, None], tile, 0.0)
                more_sums = extended(more_sums, sums[r] + weights)
                more_tiles = extended(more_tiles, mixed_tiles[r] + weights[:, None] * some)
            sums, mixed_tiles = more_sums, more_tiles
        new_totals, new_mixtures = (), ()
        for r in tl.static_range(ROWS):
            shrink = tl.exp2(tops[r] - shifts[r])
            new_totals = extended(new_totals, totals[r] * shrink + tl.sum(sums[r], axis=0))
            new_mixtures = extended(new_mixtures, mixtures[r] * shrink + tl.sum(mixed_tiles[r], axis=0))
        tops, totals, mixtures = new_tops, new_totals, new_mixtures
        after += AT_ONCE
        going = after < end
    for r in tl.static_range(ROWS):
        total = tl.where(totals[r] == 0.0, 1.0, totals[r])
        part = ((first + r) * splits + split) * heads + head
        tl.store(partial + part * HEAD_DIM + dims, mixtures[r] / total, mask=inside)
        tl.store(log_sums + part, tops[r] + tl.log2(total))


@triton.jit
def _attention_rows(
    q, keys, values, state, partial, log_sums, scale, capacity,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    AT_ONCE: tl.constexpr = TILE * TILES
    head, first = tl.program_id(0), tl.program_id(2) * GROUP
    position = tl.load(state + AT_POSITION, cache_modifier=".cg") + first
    key_rows = keys + head.to(tl.int64) * capacity * HEAD_DIM
    value_rows = values + head.to(tl.int64) * capacity * HEAD_DIM
    await_previous(PDL)
    share = positions_a_part(position, SPLITS, AT_ONCE)
    if share == positions_a_part(position + GROUP - 1, SPLITS, AT_ONCE):
        _rows_of_split(
            q, key_rows, value_rows, partial, log_sums, scale, first, position, share,
            GROUP, HEAD_DIM, EVERY_DIM, TILE, TILES,
        )  # fmt: skip
    else:
        for r in range(GROUP):
            share = positions_a_part(position + r, SPLITS, AT_ONCE)
            _rows_of_split(
                q, key_rows, value_rows, partial, log_sums, scale, first + r, position + r, share,
                1, HEAD_DIM, EVERY_DIM, TILE, TILES,
            )  # fmt: skip


def attention_rows(
    q: Tensor,
    cache: tuple[Tensor, Tensor],
    state: Tensor,
    partial: Tensor,
    log_sums: Tensor,
    tiles: tuple[int, int],
    launch: Launch,
) -> None:
    """Write each row's and split's average to `partial` (K, S, h, D), its weight to `log_sums` (K, S, h).

    `q` (K, h, D), keys and values (h, P, D), `state` (SIZE,) int32, the results float32. `tiles` are how many
    of `launch.rows` positions are read at once, as in `split_attention`, and the rows of a program, which
    divide K. Raises ValueError when these do not fit each other.
    """
    (keys, values), (at_once, group) = cache, tiles
    (rows, splits, heads, head_dim), capacity, device = partial.shape, keys.shape[1], q.device
    if rows % group:
        raise ValueError(f"{rows} rows in groups of {group}")
    held = (heads, capacity, head_dim)
    expect_all(q.dtype, device, q=(q, (rows, heads, head_dim)), keys=(keys, held), values=(values, held))
    expect("state", state, (SIZE,), torch.int32, device)
    expect("partial", partial, (rows, splits, heads, head_dim), torch.float32, device)
    expect("log_sums", log_sums, (rows, splits, heads), torch.float32, device)
    _attention_rows[(heads, splits, rows // group)](
        q, keys, values, state, partial, log_sums, math.log2(math.e) / math.sqrt(head_dim), capacity,
        GROUP=group, HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), TILE=launch.rows,
        TILES=at_once, SPLITS=splits, **launch.options(),
    )  # fmt: skip

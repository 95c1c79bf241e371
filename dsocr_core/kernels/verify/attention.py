# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention of K rows over the one cache of their page, the positions split between programs.

Letters: K rows, h heads, D head dim, P positions the cache holds, S splits, p position of row 0.

A program has one head, one split and a group of rows. It loads the split's keys and values once, and each row
takes them as a decode step at its own position does: the same tiles, those from its position on without weight.
Past S times what is read at once a split's length depends on the position, and a row whose split is another
loads it anew.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.split_attention import include, load_tiles, newest, positions_a_part
from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all
from dsocr_core.kernels.state import AT_POSITION, SIZE


@triton.jit
def _attention_rows(
    q, keys, values, state, partial, log_sums, scale, capacity,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, SPLITS: tl.constexpr,
    TILE: tl.constexpr, TILES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    AT_ONCE: tl.constexpr = TILE * TILES
    head, split, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    first = tl.program_id(2) * GROUP
    dims = tl.arange(0, EVERY_DIM)
    inside = dims < HEAD_DIM
    position = tl.load(state + AT_POSITION, cache_modifier=".cg") + first
    key_rows = keys + head.to(tl.int64) * capacity * HEAD_DIM
    value_rows = values + head.to(tl.int64) * capacity * HEAD_DIM
    farthest = position + GROUP - 1
    held_share = positions_a_part(farthest, SPLITS, AT_ONCE)
    start = tl.minimum(split * held_share, farthest)
    end = tl.minimum(start + held_share, farthest)
    await_previous(PDL)
    some_keys = load_tiles(key_rows, start, end, HEAD_DIM, EVERY_DIM, TILE, TILES)
    some_values = load_tiles(value_rows, start, end, HEAD_DIM, EVERY_DIM, TILE, TILES)
    for g in tl.static_range(GROUP):
        row = first + GROUP - 1 - g  # the farthest first: its tiles serve the others
        here = position + GROUP - 1 - g
        share = positions_a_part(here, SPLITS, AT_ONCE)
        if share != held_share:
            start = tl.minimum(split * share, here)
            some_keys = load_tiles(key_rows, start, here, HEAD_DIM, EVERY_DIM, TILE, TILES)
            some_values = load_tiles(value_rows, start, here, HEAD_DIM, EVERY_DIM, TILE, TILES)
            held_share = share
        end = tl.minimum(start + share, here)
        query = tl.load(q + (row * heads + head) * HEAD_DIM + dims, mask=inside, other=0.0, cache_modifier=".cg")
        query = query.to(tl.float32) * scale
        at_newest = here * HEAD_DIM + dims
        new_key = tl.load(key_rows + at_newest, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        new_value = tl.load(value_rows + at_newest, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        top, total, mixed = newest(query, new_key, new_value, split == 0)
        top, total, mixed = include(
            query, some_keys, some_values, start, end, top, total, mixed, EVERY_DIM, TILE, TILES, True
        )
        for after in range(start + AT_ONCE, end, AT_ONCE):
            more_keys = load_tiles(key_rows, after, end, HEAD_DIM, EVERY_DIM, TILE, TILES)
            more_values = load_tiles(value_rows, after, end, HEAD_DIM, EVERY_DIM, TILE, TILES)
            top, total, mixed = include(
                query, more_keys, more_values, after, end, top, total, mixed, EVERY_DIM, TILE, TILES, False
            )
        total = tl.where(total == 0.0, 1.0, total)
        part = (row * SPLITS + split) * heads + head
        tl.store(partial + part * HEAD_DIM + dims, mixed / total, mask=inside)
        tl.store(log_sums + part, top + tl.log2(total))


def attention_rows(
    q: Tensor,
    cache: tuple[Tensor, Tensor],
    state: Tensor,
    partial: Tensor,
    log_sums: Tensor,
    tiles: tuple[int, int],
    launch: Launch,
) -> None:
    """Write each row's and split's average to `partial` (K, S, h, D), its weight to `log_sums` (K, S, h), float32.

    `q` (K, h, D), keys and values (h, P, D), `state` (SIZE,) int32. `tiles` are the tiles of
    `launch.rows` positions read at once, as in `split_attention`, and the rows of a program, which divide K. Raises
    ValueError when these do not fit each other.
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
        GROUP=group, HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), SPLITS=splits,
        TILE=launch.rows, TILES=at_once, **launch.options(),
    )  # fmt: skip

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Attention of one query over the cache, the positions split between programs.

Letters: h heads, D head dim, P positions the cache holds, S splits, p the current position.

A program takes one head and one of S equal splits of the positions before p; the first split takes p as
well. It writes the split's softmax average (D,) and the base-2 logarithm of its sum of exponentials;
`attention_output` merges the splits. The older rows are loaded before the wait: only p's is new. In a
ring that has turned p's slot lies among theirs, and they leave it out.

A program loads several tiles of rows at once. A split is at least that long: while the sequence is short some
splits are empty, and fewer splits are less to merge.

Moves 2 h D (p + 1) cache elements.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all
from dsocr_core.kernels.matvec import extended, load_tile, unpacked
from dsocr_core.kernels.state import AT_POSITION, SIZE, place, stored_reference


@triton.jit
def positions_a_part(position, SPLITS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Positions of a split before the current one; the last split has fewer."""
    return tl.maximum(tl.cdiv(position, SPLITS), AT_ONCE)


@triton.jit
def _load_tiles(
    rows, start, end, skip,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Rows of keys or values from `start` on, as tiles (TILE, EVERY_DIM); zeros at `skip`, from `end` on."""
    tiles = ()
    for t in tl.static_range(TILES):
        n = start + t * TILE + tl.arange(0, TILE)
        live = (n < end) & (n != skip)
        tiles = extended(tiles, load_tile(rows + n * HEAD_DIM, live, 0, HEAD_DIM, EVERY_DIM, ".cg", ""))
    return tiles


@triton.jit
def _scored(query, keys, start, end, skip, top, TILE: tl.constexpr, TILES: tl.constexpr):
    """Scores of tiles of positions and the running maximum with them: one barrier, not one a tile."""
    scores = ()
    tops = tl.full([TILE], float("-inf"), tl.float32)
    for t in tl.static_range(TILES):
        score = tl.sum(unpacked(keys[t]) * query[None, :], axis=1)
        n = start + t * TILE + tl.arange(0, TILE)
        score = tl.where((n < end) & (n != skip), score, float("-inf"))
        tops = tl.maximum(tops, score)
        scores = extended(scores, score)
    return scores, tl.maximum(top, tl.max(tops, axis=0))


@triton.jit
def _included(
    scores, values, new_top, top, total, mixed,
    EVERY_DIM: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The running softmax after tiles with these scores."""
    # Without positions on either side this would be -inf - -inf.
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)
    shrink = tl.exp2(top - shift)
    sums = tl.zeros([TILE], tl.float32)
    mixtures = tl.zeros([TILE, EVERY_DIM], tl.float32)
    for t in tl.static_range(TILES):
        weights = tl.exp2(scores[t] - shift)
        sums += weights
        mixtures += weights[:, None] * unpacked(values[t])
    total = total * shrink + tl.sum(sums, axis=0)
    mixed = mixed * shrink + tl.sum(mixtures, axis=0)
    return total, mixed


@triton.jit
def _split_attention(
    q, keys, values, state, partial, log_sums, scale, capacity,
    HEAD_DIM: tl.constexpr, EVERY_DIM: tl.constexpr, SPLITS: tl.constexpr, TILE: tl.constexpr,
    TILES: tl.constexpr, RING: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    AT_ONCE: tl.constexpr = TILE * TILES
    head, split = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, EVERY_DIM)
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")
    slot, filled = place(position, state, RING)
    share = positions_a_part(filled, SPLITS, AT_ONCE)
    start = tl.minimum(split * share, filled)
    end = tl.minimum(start + share, filled)
    key_rows = keys + head.to(tl.int64) * capacity * HEAD_DIM
    value_rows = values + head.to(tl.int64) * capacity * HEAD_DIM
    some_keys = _load_tiles(key_rows, start, end, slot, HEAD_DIM, EVERY_DIM, TILE, TILES)
    some_values = _load_tiles(value_rows, start, end, slot, HEAD_DIM, EVERY_DIM, TILE, TILES)
    await_previous(PDL)
    query = tl.load(q + head * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32) * scale
    newest = slot * HEAD_DIM + dims
    new_key = tl.load(key_rows + newest, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    new_value = tl.load(value_rows + newest, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    has_newest = split == 0
    top = tl.where(has_newest, tl.sum(query * new_key, axis=0), float("-inf"))
    total = tl.where(has_newest, 1.0, 0.0)
    mixed = tl.where(has_newest, new_value, 0.0)
    scores, new_top = _scored(query, some_keys, start, end, slot, top, TILE, TILES)
    total, mixed = _included(scores, some_values, new_top, top, total, mixed, EVERY_DIM, TILE, TILES)
    top = new_top
    for after in range(start + AT_ONCE, end, AT_ONCE):
        some_keys = _load_tiles(key_rows, after, end, slot, HEAD_DIM, EVERY_DIM, TILE, TILES)
        some_values = _load_tiles(value_rows, after, end, slot, HEAD_DIM, EVERY_DIM, TILE, TILES)
        scores, new_top = _scored(query, some_keys, after, end, slot, top, TILE, TILES)
        total, mixed = _included(scores, some_values, new_top, top, total, mixed, EVERY_DIM, TILE, TILES)
        top = new_top
    # A split without positions has no weight: an average of 0 and a maximum of -inf.
    total = tl.where(total == 0.0, 1.0, total)
    part = split * tl.num_programs(0) + head
    tl.store(partial + part * HEAD_DIM + dims, mixed / total, mask=dims < HEAD_DIM)
    tl.store(log_sums + part, top + tl.log2(total))


def split_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    state: Tensor,
    partial: Tensor,
    log_sums: Tensor,
    tiles: int,
    launch: Launch,
    ring: int = 0,
) -> None:
    """Write each split's average to `partial` (S, h, D) and its weight to `log_sums` (S, h), both float32.

    `q` (h, D), `keys` and `values` (h, P, D), `state` (SIZE,) int32; `tiles` of `launch.rows` positions are
    read at once; `ring` slots behind the prompt are taken in turn.
    """
    heads, capacity, head_dim = keys.shape
    splits, device = partial.shape[0], q.device
    cache = (heads, capacity, head_dim)
    expect_all(q.dtype, device, q=(q, (heads, head_dim)), keys=(keys, cache), values=(values, cache))
    expect("state", state, (SIZE,), torch.int32, device)
    expect("partial", partial, (splits, heads, head_dim), torch.float32, device)
    expect("log_sums", log_sums, (splits, heads), torch.float32, device)
    scale = math.log2(math.e) / math.sqrt(head_dim)
    _split_attention[(heads, splits)](
        q, keys, values, state, partial, log_sums, scale, capacity,
        HEAD_DIM=head_dim, EVERY_DIM=triton.next_power_of_2(head_dim), SPLITS=splits, TILE=launch.rows,
        TILES=tiles, RING=ring, **launch.options(),
    )  # fmt: skip


def split_attention_reference(
    q: Tensor, keys: Tensor, values: Tensor, state: Tensor, ring: int = 0
) -> Tensor:
    """Reference in plain torch, without splits: attention of `q` (h, D) over the cache, (h, D) float32."""
    seen = stored_reference(state, ring, 0)
    q, keys, values = q.float(), keys[:, seen].float(), values[:, seen].float()
    scores = torch.einsum("hd,hpd->hp", q, keys) / math.sqrt(q.shape[-1])  # (h, P)
    return torch.einsum("hp,hpd->hd", scores.softmax(dim=-1), values)


def join_parts_reference(partial: Tensor, log_sums: Tensor) -> Tensor:
    """Merge the splits: (S, h, D) and (S, h) -> (h, D) float32."""
    weights = torch.softmax(log_sums * math.log(2), dim=0)  # (S, h)
    return (partial * weights.unsqueeze(-1)).sum(dim=0)

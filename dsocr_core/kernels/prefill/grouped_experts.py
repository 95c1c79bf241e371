# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The routed experts over many tokens: two grouped products, without a loop over experts or a host sync.

Letters: T tokens, k experts a token, E experts, C hidden size, I width of an expert. A slot is one (token,
choice) pair, numbered token * k + choice; rows are slots ordered by expert (`expert_order`).

    route_tokens(x, router, chosen, weights, scaling)         # (T, k) each
    order_by_expert(chosen, slots, starts)                    # (T k,), (E + 1,)
    grouped_gate_up(x, slots, starts, gate, up, gated, at)    # (T k, I), in the order of `slots`
    grouped_down(gated, slots, starts, down, routed, at)      # (T, k, C), back in the tokens' order
    add_and_norm(..., routed=routed, weights=weights)         # the weighted sum, in float32

A program makes one tile of one expert's output. The number of tiles depends on what the router chose,
which only the device has, so the grid is as large as it can be; a program finds its expert from `starts`, and
surplus programs return early.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Tile, await_previous, expect, expect_all, overlapping, takes_wide_tiles
from dsocr_core.kernels.matvec import silu


def grouped_launches(slots: int, experts: int, dtype: torch.dtype, device: torch.device) -> tuple[Tile, Tile]:
    """Tiles of gate and up, and of down, chosen by the mean number of rows an expert."""
    rows, roomy = slots / experts, takes_wide_tiles(device) and dtype.itemsize == 2
    if rows > 64 and roomy:  # a wide tile reads each row less often
        return Tile(128, 128, 64, 8, 4), Tile(128, 256, 64, 8, 4)
    if rows > 32 and roomy:
        return Tile(64, 128, 64, 4, 5), Tile(64, 128, 64, 4, 3)
    if rows > 48:  # a prefill: bound by arithmetic as much as by weights
        return Tile(128, 64, 64, 8, 3), Tile(128, 128, 64, 8, 3)
    if rows > 12:  # a batch of decoded tokens: bound by reading every expert once
        return Tile(32, 64, 128, 4, 3), Tile(32, 64, 128, 4, 4)
    return Tile(16, 64, 128, 4, 3), Tile(16, 64, 128, 4, 4)


@triton.jit
def _tile(starts, tile, EXPERTS: tl.constexpr, EVERY: tl.constexpr, ROWS: tl.constexpr):
    """(expert, first row, end of the expert's rows) of a tile; without rows where the tile does not exist."""
    ids = tl.arange(0, EVERY)
    first = tl.load(starts + ids, mask=ids < EXPERTS, other=0)
    end = tl.load(starts + ids + 1, mask=ids < EXPERTS, other=0)
    tiles = (end - first + ROWS - 1) // ROWS
    ends = tl.cumsum(tiles, axis=0)
    expert = tl.sum((ends <= tile).to(tl.int32), axis=0)
    mine = ids == expert
    row = tl.sum(tl.where(mine, first + (tile - ends + tiles) * ROWS, 0), axis=0)
    return expert, row, tl.sum(tl.where(mine, end, 0), axis=0)


@triton.jit
def _grouped_gate_up(
    x, slots, starts, gate, up, gated,
    WIDTH: tl.constexpr, INNER: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr,
    CHOSEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    expert, first, end = _tile(starts, tl.program_id(1), EXPERTS, EVERY, ROWS)
    if first >= end:
        return
    row = first + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    # Beyond the last row or column an existing one is repeated, so that no load needs a mask.
    token = tl.load(slots + tl.minimum(row, end - 1)) // CHOSEN
    x_at = x + token.to(tl.int64)[:, None] * WIDTH + depth[None, :]
    weight_at = (expert.to(tl.int64) * INNER + tl.minimum(column, INNER - 1))[None, :] * WIDTH + depth[
        :, None
    ]
    gates = tl.zeros([ROWS, COLUMNS], tl.float32)
    ups = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(0, WIDTH, DEPTH):
        if WIDTH % DEPTH == 0:
            rows = tl.load(x_at + step)
            gate_part = tl.load(gate + weight_at + step)
            up_part = tl.load(up + weight_at + step)
        else:
            inside = step + depth < WIDTH
            rows = tl.load(x_at + step, mask=inside[None, :], other=0.0)
            gate_part = tl.load(gate + weight_at + step, mask=inside[:, None], other=0.0)
            up_part = tl.load(up + weight_at + step, mask=inside[:, None], other=0.0)
        gates = tl.dot(rows, gate_part, gates, input_precision="ieee")
        ups = tl.dot(rows, up_part, ups, input_precision="ieee")
    out = (silu(gates) * ups).to(gated.dtype.element_ty)
    live = (row < end)[:, None] & (column < INNER)[None, :]
    tl.store(gated + row.to(tl.int64)[:, None] * INNER + column[None, :], out, mask=live)


@triton.jit
def _grouped_down(
    gated, slots, starts, down, routed,
    WIDTH: tl.constexpr, INNER: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    expert, first, end = _tile(starts, tl.program_id(1), EXPERTS, EVERY, ROWS)
    if first >= end:
        return
    row = first + tl.arange(0, ROWS)
    held = tl.minimum(row, end - 1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    gated_at = gated + held.to(tl.int64)[:, None] * INNER + depth[None, :]
    down_at = (expert.to(tl.int64) * WIDTH + tl.minimum(column, WIDTH - 1))[None, :] * INNER + depth[:, None]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(0, INNER, DEPTH):
        if INNER % DEPTH == 0:
            rows = tl.load(gated_at + step)
            part = tl.load(down + down_at + step)
        else:
            inside = step + depth < INNER
            rows = tl.load(gated_at + step, mask=inside[None, :], other=0.0)
            part = tl.load(down + down_at + step, mask=inside[:, None], other=0.0)
        sums = tl.dot(rows, part, sums, input_precision="ieee")
    slot = tl.load(slots + held)
    live = (row < end)[:, None] & (column < WIDTH)[None, :]
    at = slot.to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(routed + at, sums.to(routed.dtype.element_ty), mask=live)


def most_tiles(slots: int, experts: int, rows: int) -> int:
    """Upper bound of the number of tiles of `rows`, for any distribution of slots over experts."""
    return slots // rows + min(experts, slots)


def grouped_gate_up(
    x: Tensor, slots: Tensor, starts: Tensor, gate: Tensor, up: Tensor, gated: Tensor, launch: Tile
) -> None:
    """Write `gated` (T k, I), SiLU of gate times up, its rows in the order of `slots`.

    `x` (T, C) normed, `slots` (T k,) and `starts` (E + 1,) int32 of `order_by_expert`, `gate` and `up` (E, I,
    C).
    """
    (experts, inner, width), (tokens, _), device = gate.shape, x.shape, x.device
    count = slots.shape[0]
    expect_all(
        x.dtype, device, x=(x, (tokens, width)), gate=(gate, (experts, inner, width)),
        up=(up, (experts, inner, width)), gated=(gated, (count, inner)),
    )  # fmt: skip
    _expect_order(slots, starts, experts, device)
    if not tokens or not count or count % tokens:
        raise ValueError(f"{count} slots for {tokens} tokens")
    grid = (triton.cdiv(inner, launch.columns), most_tiles(count, experts, launch.rows))
    _grouped_gate_up[grid](
        x, slots, starts, gate, up, gated, WIDTH=width, INNER=inner, EXPERTS=experts,
        EVERY=triton.next_power_of_2(experts), CHOSEN=count // tokens, **launch.options(),
        **overlapping(device),
    )  # fmt: skip


def grouped_down(
    gated: Tensor, slots: Tensor, starts: Tensor, down: Tensor, routed: Tensor, launch: Tile
) -> None:
    """Write `routed` (T, k, C), each slot's expert output, not yet weighted.

    `gated` (T k, I) of `grouped_gate_up`, `slots` (T k,) and `starts` (E + 1,) int32, `down` (E, C, I).
    """
    (experts, width, inner), (tokens, each, _), device = down.shape, routed.shape, gated.device
    count = tokens * each
    expect_all(
        gated.dtype, device, gated=(gated, (count, inner)), down=(down, (experts, width, inner)),
        routed=(routed, (tokens, each, width)),
    )  # fmt: skip
    expect("slots", slots, (count,), torch.int32, device)
    _expect_order(slots, starts, experts, device)
    if not count:
        raise ValueError("no slots")
    grid = (triton.cdiv(width, launch.columns), most_tiles(count, experts, launch.rows))
    _grouped_down[grid](
        gated, slots, starts, down, routed, WIDTH=width, INNER=inner, EXPERTS=experts,
        EVERY=triton.next_power_of_2(experts), **launch.options(), **overlapping(device),
    )  # fmt: skip


def _expect_order(slots: Tensor, starts: Tensor, experts: int, device: torch.device) -> None:
    expect("slots", slots, (slots.shape[0],), torch.int32, device)
    expect("starts", starts, (experts + 1,), torch.int32, device)


def grouped_gate_up_reference(x, slots, starts, gate, up, gated, launch=None):
    """Reference: a loop over the experts, gate and up in float32."""
    rows = x[slots.long() // (slots.shape[0] // x.shape[0])].to(torch.float32)  # (T k, C)
    parts = [
        F.silu(part @ g.to(torch.float32).t()) * (part @ u.to(torch.float32).t())
        for part, g, u in zip(torch.split(rows, _counts(starts)), gate, up, strict=True)
    ]
    gated.copy_(torch.cat(parts))


def grouped_down_reference(gated, slots, starts, down, routed, launch=None):
    """Reference: a loop over the experts."""
    parts = torch.split(gated.to(torch.float32), _counts(starts))
    rows = torch.cat([part @ d.to(torch.float32).t() for part, d in zip(parts, down, strict=True)])
    routed.view(len(rows), -1)[slots.long()] = rows.to(routed.dtype)


def _counts(starts: Tensor) -> list[int]:
    return [int(count) for count in starts.diff().tolist()]

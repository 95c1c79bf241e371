# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Bounds of all logits from the head in 8 bits: what cannot be the best is never read in full.

Letters: C hidden size, V vocabulary, M programs of `bound_rows`.

The argmax needs all logits, but only the best one exactly. `round_head` keeps each row w as integers q of 8
bits and a scale s. For the normed hidden state y, itself rounded to y' (16 bits, as two planes of 8), the
Cauchy-Schwarz inequality says

    |w y - s q y'| <= |w - s q| |y| + |s q| |y - y'|

The first norm of each product is the row's and known before. `reach` is the sum of both for |y| = 1, with
what float32 sums may lose, those of the logit itself included. So a logit lies within reach |y| of s q y',
and rounding to the activations' dtype keeps the order. q y' is a sum of integers: exact, four products an
instruction.

Where float32 cannot hold such a figure - weights or a state beyond `LEAST` to `MOST`, what is no number - the
bounds are infinite: every such row is read. What underflows in a product is lost to an absolute margin.

`lm_head.best_of_bounded` then computes the logits whose upper bound is not below the highest lower bound: of
random weights some ten of 129,280, of the embedded checkpoint's one. No other can be the best, nor tie with
it. Moves V C bytes: half of the head in bfloat16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import extended, load_vector, rounded
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference
from dsocr_core.kernels.state import AT_POSITION, POSITION, SIZE

ROW_STEPS = 127
"""Integer that a row's largest weight becomes."""

VECTOR_STEPS = 127 * 256
"""Largest element of the hidden state in units of its scale: 256 times the high plane, plus the low one."""

LEAST, MOST = 1e-30, 1e30
"""Limits of a row's or state's largest element within which float32 holds its norm and products."""

_ROWS_AT_ONCE = 8192
_LEAST, _MOST, _MOST_LOGIT = tl.constexpr(LEAST), tl.constexpr(MOST), tl.constexpr(1e38)
_LOST = tl.constexpr(2.0**-125)
_VECTOR_STEPS = tl.constexpr(VECTOR_STEPS)


@dataclass(frozen=True)
class RoundedHead:
    """The head in 8 bits: `rows` (V, C), float32 `scale` and `reach` (V,)."""

    rows: Tensor
    scale: Tensor
    reach: Tensor


def round_head(head: Tensor) -> RoundedHead:
    """Round `head` (V, C), bfloat16 or float32. C is a multiple of 4: ValueError otherwise."""
    vocabulary, width = head.shape
    if width % 4:
        raise ValueError(f"hidden size {width} is not a multiple of 4")
    rows = torch.empty(vocabulary, width, dtype=torch.int8, device=head.device)
    scale, reach = (torch.empty(vocabulary, device=head.device) for _ in range(2))
    # An element of y is at most |y|, so the unit of y' is at most |y| / VECTOR_STEPS. Half of it is lost, and
    # 0.01 more to the division. Then a float32 sum of C products, and a few roundings.
    lost = 0.51 * math.sqrt(width) / VECTOR_STEPS + (width + 68) * 2.0**-24
    for first in range(0, vocabulary, _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        exact = head[part].to(torch.float32)
        highest = exact.abs().amax(dim=1)
        usable = (highest > LEAST) & (highest < MOST)
        top = torch.where(usable, highest, 1.0)
        exact = torch.where(usable[:, None], exact / top[:, None], 0.0)  # largest 1, whatever the row's size
        whole = (exact * ROW_STEPS).round()
        error = exact.sub(whole, alpha=1 / ROW_STEPS).norm(dim=1)
        rows[part], scale[part] = whole.to(torch.int8), top / ROW_STEPS
        # A thousandth for the norms' own rounding, and for |s q| in place of |w|.
        reached = 1.001 * top * (error + lost * (exact.norm(dim=1) + error))
        reach[part] = torch.where(usable | (highest == 0), reached, math.inf)
    return RoundedHead(rows, scale, reach)


@triton.jit
def _split_vector(
    x, gain, normed_x, planes, sizes, eps, WIDTH: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr
):
    DTYPE: tl.constexpr = x.dtype.element_ty
    gains = load_vector(gain, WIDTH, CHUNK)
    await_previous(PDL)
    y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    highest = tl.zeros([CHUNK], tl.float32)
    for c in tl.static_range((WIDTH + CHUNK - 1) // CHUNK):
        highest = tl.maximum(highest, tl.abs(y[c]))
    top = tl.max(highest, axis=0)
    usable = (top > _LEAST) & (top < _MOST)
    safe = tl.where(usable, top, 1.0)
    units = _VECTOR_STEPS / safe
    squares = tl.zeros([CHUNK], tl.float32)
    for c in tl.static_range((WIDTH + CHUNK - 1) // CHUNK):
        cols = c * CHUNK + tl.arange(0, CHUNK)
        tl.store(normed_x + cols, y[c].to(DTYPE), mask=cols < WIDTH)
        squares += (y[c] / safe) * (y[c] / safe)
        whole = tl.floor(tl.where(usable, y[c], 0.0) * units + 0.5).to(tl.int32)
        high = (whole + 128) >> 8
        tl.store(planes + cols, high.to(tl.int8), mask=cols < WIDTH)
        tl.store(planes + WIDTH + cols, (whole - high * 256).to(tl.int8), mask=cols < WIDTH)
    tl.store(sizes, 1.0 / units)
    # Rounded up: a bound may be too wide, never too narrow.
    length = tl.sqrt(tl.sum(squares, axis=0)) * safe * 1.001
    tl.store(sizes + 1, tl.where(usable | (top == 0), length, float("inf")))


@triton.jit
def bounds_around(middle, slack, allowed, WIDTH: tl.constexpr, DTYPE: tl.constexpr):
    """Lower and upper bound around `middle`: -inf where not allowed, infinite where they are not finite."""
    slack += WIDTH * _LOST
    known = tl.abs(middle) + slack < _MOST_LOGIT  # false for NaN
    low = tl.where(known, rounded(middle - slack, DTYPE), float("-inf"))
    high = tl.where(known, rounded(middle + slack, DTYPE), float("inf"))
    return tl.where(allowed, low, float("-inf")), tl.where(allowed, high, float("-inf"))


@triton.jit
def _dot4(a, b, total, INTERPRETED: tl.constexpr):
    """`total` plus the products of four pairs of int8 in int32 words."""
    if INTERPRETED:  # the interpreter has no assembly
        for shift in tl.static_range(0, 32, 8):
            total += ((a << (24 - shift)) >> 24) * ((b << (24 - shift)) >> 24)
        return total
    else:
        return tl.inline_asm_elementwise(
            "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, total], dtype=tl.int32, is_pure=True, pack=1
        )


@triton.jit
def _load_block(
    rows, scale, reach, banned_at, block, vocabulary,
    WORDS: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Tiles of a block of rows, and each row's scale, reach and stamp. Past the last row nothing is read."""
    row = block * ROWS + tl.arange(0, ROWS)
    live = row < vocabulary
    at = rows.to(tl.pointer_type(tl.int32)) + row.to(tl.int64) * WORDS
    tiles = ()
    for c in tl.static_range((WORDS + CHUNK - 1) // CHUNK):
        cols = c * CHUNK + tl.arange(0, CHUNK)
        mask = live[:, None] & (cols < WORDS)[None, :]
        tile = tl.load(at[:, None] + cols[None, :], mask=mask, other=0, eviction_policy="evict_first")
        tiles = extended(tiles, tile)
    unit = tl.load(scale + row, mask=live, other=0.0)
    reached = tl.load(reach + row, mask=live, other=0.0)
    # The first kernel of the step wrote the stamps.
    banned = tl.load(banned_at + row, mask=live, other=0, cache_modifier=".cg")
    return tiles, unit, reached, banned


@triton.jit
def _bound_rows(
    rows, scale, reach, planes, sizes, banned_at, state, lower, upper, vocabulary,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, DTYPE: tl.constexpr,
    INTERPRETED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    WORDS: tl.constexpr = WIDTH // 4
    COUNT: tl.constexpr = (WORDS + CHUNK - 1) // CHUNK
    block, programs = tl.program_id(0), tl.num_programs(0)
    loaded = _load_block(rows, scale, reach, banned_at, block, vocabulary, WORDS, ROWS, CHUNK)
    position = tl.load(state + AT_POSITION, cache_modifier=".cg")

    await_previous(PDL)
    words = planes.to(tl.pointer_type(tl.int32))
    high, low = (), ()
    for c in tl.static_range(COUNT):
        cols = c * CHUNK + tl.arange(0, CHUNK)
        high = extended(high, tl.load(words + cols, mask=cols < WORDS, other=0, cache_modifier=".cg"))
        low = extended(low, tl.load(words + WORDS + cols, mask=cols < WORDS, other=0, cache_modifier=".cg"))
    vector_unit = tl.load(sizes, cache_modifier=".cg")
    length = tl.load(sizes + 1, cache_modifier=".cg")
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    while block * ROWS < vocabulary:
        # Loaded before this block's sums, so that the memory is never idle.
        following = _load_block(
            rows, scale, reach, banned_at, block + programs, vocabulary, WORDS, ROWS, CHUNK
        )
        tiles, unit, reached, banned = loaded
        highs = tl.zeros([ROWS, CHUNK], tl.int32)
        lows = tl.zeros([ROWS, CHUNK], tl.int32)
        for c in tl.static_range(COUNT):
            highs = _dot4(tiles[c], tl.broadcast_to(high[c][None, :], [ROWS, CHUNK]), highs, INTERPRETED)
            lows = _dot4(tiles[c], tl.broadcast_to(low[c][None, :], [ROWS, CHUNK]), lows, INTERPRETED)
        total = tl.sum(highs, axis=1).to(tl.float32) * 256.0 + tl.sum(lows, axis=1).to(tl.float32)
        row = block * ROWS + tl.arange(0, ROWS)
        live = row < vocabulary
        allowed = live & (banned != position)
        low_bound, high_bound = bounds_around(
            total * vector_unit * unit, reached * length, allowed, WIDTH, DTYPE
        )
        tl.store(upper + row, high_bound, mask=live)
        highest = tl.maximum(highest, low_bound)
        loaded = following
        block += programs
    tl.store(lower + tl.program_id(0), tl.max(highest, axis=0))


def split_vector(
    x: Tensor, gain: Tensor, normed_x: Tensor, planes: Tensor, sizes: Tensor, eps: float, launch: Launch
) -> None:
    """Write the normed hidden state, its two planes of 8 bits, and (unit, norm) to `sizes`.

    `x`, `gain`, `normed_x` (C,), `planes` (2, C) int8, `sizes` (2,) float32.
    """
    width, device = x.shape[0], x.device
    expect_all(x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), normed_x=(normed_x, (width,)))
    expect("planes", planes, (2, width), torch.int8, device)
    expect("sizes", sizes, (2,), torch.float32, device)
    _split_vector[(1,)](
        x, gain, normed_x, planes, sizes, eps, WIDTH=width, CHUNK=chunk_width(width), **launch.options()
    )


def bound_rows(
    head: RoundedHead,
    planes: Tensor,
    sizes: Tensor,
    banned_at: Tensor,
    state: Tensor,
    lower: Tensor,
    upper: Tensor,
    dtype: torch.dtype,
    launch: Launch,
) -> None:
    """Write every logit's upper bound, and the highest lower bound of each program.

    `planes` and `sizes` as `split_vector` writes them, `banned_at` (V,) int32, `state` (SIZE,) int32, `lower`
    (M,) and `upper` (V,) float32, -inf where banned; `dtype` is the logits'. There are as many programs as
    `lower` holds.
    """
    vocabulary, width = head.rows.shape
    programs, device = lower.shape[0], head.rows.device
    expect("planes", planes, (2, width), torch.int8, device)
    expect("sizes", sizes, (2,), torch.float32, device)
    expect_all(torch.int32, device, banned_at=(banned_at, (vocabulary,)), state=(state, (SIZE,)))
    expect_all(torch.float32, device, lower=(lower, (programs,)), upper=(upper, (vocabulary,)))
    _bound_rows[(programs,)](
        head.rows, head.scale, head.reach, planes, sizes, banned_at, state, lower, upper, vocabulary,
        WIDTH=width, ROWS=launch.rows, CHUNK=chunk_width(width // 4),
        DTYPE=tl.bfloat16 if dtype == torch.bfloat16 else tl.float32,
        INTERPRETED=triton.knobs.runtime.interpret, **launch.options(),
    )  # fmt: skip


def bounds_reference(
    head: RoundedHead, x: Tensor, gain: Tensor, banned_at: Tensor, state: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Lower and upper bound of every logit, (V,) float32 each, -inf where banned."""
    y = rms_norm_reference(x, gain, eps).to(torch.float64)
    unit = y.abs().max() / VECTOR_STEPS
    middle = head.rows.to(torch.float64) @ (y / unit).round() * unit * head.scale
    slack = head.reach * y.norm() + head.rows.shape[1] * 2.0**-125
    banned = banned_at == state[POSITION]
    low, high = (bound.to(x.dtype).to(torch.float32) for bound in (middle - slack, middle + slack))
    return low.masked_fill(banned, float("-inf")), high.masked_fill(banned, float("-inf"))

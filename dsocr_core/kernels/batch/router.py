# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""A batch: which experts each slot's token goes to, and the gated activation (SiLU of gate, times up).

Letters: S slots, R rows, E experts, k experts a token, I width of the gated pair.

Router, gate and up are one product a row, so both kernels read parts of the same rows; row r S + s is r
tokens ahead of slot s's current one. A row that does not count gets the first k experts with weight 0: the
grouped products need an expert for every row, and the same few cost least.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.router import ranked, route_reference
from dsocr_core.kernels.launch import Launch, await_previous, expect, expect_all, overlapping
from dsocr_core.kernels.matvec import rounded, silu
from dsocr_core.kernels.state import SIZE, row_position, row_position_reference


@triton.jit
def _route_rows(
    products, states, ids, weights, scaling, stride, slots,
    EXPERTS: tl.constexpr, EVERY: tl.constexpr, CHOSEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    number = tl.program_id(0)
    _, live = row_position(states, number % slots, number // slots)
    mine, theirs = tl.arange(0, EVERY), tl.arange(0, EVERY)
    row = products + number * stride
    my_logit = tl.load(row + mine, mask=mine < EXPERTS, other=float("-inf")).to(tl.float32)
    their_logit = tl.load(row + theirs, mask=theirs < EXPERTS, other=float("-inf")).to(tl.float32)
    rank, share = ranked(mine, theirs, my_logit, their_logit)
    chosen = (mine < EXPERTS) & (rank < CHOSEN)
    at = number * CHOSEN + rank
    tl.store(ids + at, tl.where(live, mine, rank), mask=chosen)
    tl.store(weights + at, tl.where(live, share * scaling, 0.0), mask=chosen)


@triton.jit
def _gated_rows(products, gated, stride, first, INNER: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    await_previous(PDL)
    DTYPE: tl.constexpr = gated.dtype.element_ty
    slot = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < INNER
    row = products + slot * stride + first + cols
    gate = tl.load(row, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(row + INNER, mask=inside, other=0.0).to(tl.float32)
    tl.store(gated + slot * INNER + cols, (rounded(silu(gate), DTYPE) * up).to(DTYPE), mask=inside)


def route_rows(
    products: Tensor,
    experts: int,
    states: Tensor,
    ids: Tensor,
    weights: Tensor,
    scaling: float,
    launch: Launch,
) -> None:
    """Write each row's best experts in order to `ids` (R, k) int32, their weights to `weights` (R, k).

    The first `experts` columns of `products` (R, ...) are the router's logits; the weights are float32
    softmax of all of them, scaled and not normalised again. A row that does not count gets the first k and 0.
    """
    (rows, chosen), slots, device = ids.shape, states.shape[0], ids.device
    if rows % slots:
        raise ValueError(f"{rows} rows for {slots} slots")
    if not 1 <= chosen <= experts <= products.shape[1]:
        raise ValueError(f"{chosen} experts a token of {experts}, in {products.shape[1]} columns")
    expect_all(products.dtype, ids.device, products=(products, (rows, products.shape[1])))
    expect("states", states, (slots, SIZE), torch.int32, device)
    expect("ids", ids, (rows, chosen), torch.int32)
    expect("weights", weights, (rows, chosen), torch.float32, ids.device)
    _route_rows[(rows,)](
        products, states, ids, weights, scaling, products.shape[1], slots,
        EXPERTS=experts, EVERY=triton.next_power_of_2(experts), CHOSEN=chosen, num_warps=launch.warps,
        **overlapping(ids.device),
    )  # fmt: skip


def route_rows_reference(products, experts, states, ids, weights, scaling, launch=None):
    """Reference in plain torch."""
    for slot, row in enumerate(products[:, :experts].to(torch.float32)):
        ids[slot], weights[slot] = route_reference(row, ids.shape[1], scaling)
    done = ~row_position_reference(states, len(ids))[1]
    ids[done] = torch.arange(ids.shape[1], dtype=torch.int32, device=ids.device)
    weights[done] = 0.0


def gated_rows(products: Tensor, first: int, gated: Tensor, launch: Launch) -> None:
    """Write SiLU of one product times the other to `gated` (S, I).

    Gate is `products[:, first : first + I]`, up the I columns after it.
    """
    (slots, inner), columns = gated.shape, products.shape[1]
    if first < 0 or first + 2 * inner > columns:
        raise ValueError(f"gate and up of {inner} columns from {first} on do not fit {columns}")
    expect_all(
        gated.dtype, gated.device, products=(products, (slots, columns)), gated=(gated, (slots, inner))
    )
    _gated_rows[(triton.cdiv(inner, launch.rows), slots)](
        products, gated, columns, first,
        INNER=inner, BLOCK=launch.rows, num_warps=launch.warps, **overlapping(gated.device),
    )  # fmt: skip


def gated_rows_reference(products: Tensor, first: int, gated: Tensor, launch: Launch | None = None) -> None:
    """Reference in plain torch."""
    inner = gated.shape[1]
    gate, up = products[:, first : first + 2 * inner].chunk(2, dim=1)  # (S, I) each
    gated.copy_(F.silu(gate) * up)

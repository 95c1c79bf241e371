# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Norm, the router's logits, and which experts one token goes to.

Letters: C hidden size, E experts, k experts a token.

One program does it all: it holds the E C weights before its wait, and the choice follows the logits without
a launch between them. Repeating the choice in every program of the expert products cost three times the
time of their weights on an H200.

An expert's rank is how many others come before it: a larger logit, or an equal one and a lower id.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import dot_rows, load_rows, load_vector, product_reference, rounded
from dsocr_core.kernels.rms_norm import normed, rms_norm_reference


@triton.jit
def ranked(mine, theirs, my_logit, their_logit):
    """Rank and softmax of each expert. Ids and logits (E,) are given twice: for rows and for columns."""
    # As the smallest logit a NaN leaves each expert its own rank.
    my_logit = tl.where(my_logit == my_logit, my_logit, float("-inf"))
    their_logit = tl.where(their_logit == their_logit, their_logit, float("-inf"))
    larger = their_logit[None, :] > my_logit[:, None]
    earlier = (their_logit[None, :] == my_logit[:, None]) & (theirs[None, :] < mine[:, None])
    rank = tl.sum((larger | earlier).to(tl.int32), axis=1)
    top = tl.max(my_logit, axis=0)
    exponents = tl.exp(my_logit - tl.where(top == float("-inf"), 0.0, top))
    return rank, exponents / tl.sum(exponents, axis=0)


@triton.jit
def _route(
    x, gain, router, ids, weights, eps, scaling,
    WIDTH: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, CHOSEN: tl.constexpr,
    CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    expert = tl.arange(0, EVERY)
    live = expert < EXPERTS
    rows = load_rows(router + expert * WIDTH, live, WIDTH, CHUNK)
    gains = load_vector(gain, WIDTH, CHUNK)

    await_previous(PDL)
    y = normed(load_vector(x, WIDTH, CHUNK), gains, eps, WIDTH, CHUNK, DTYPE)
    logit = rounded(dot_rows(rows, y, COUNT, EVERY, CHUNK), DTYPE)
    logit = tl.where(live, logit, float("-inf"))
    rank, share = ranked(expert, expert, logit, logit)
    chosen = live & (rank < CHOSEN)
    tl.store(ids + rank, expert, mask=chosen)
    tl.store(weights + rank, share * scaling, mask=chosen)


def route(
    x: Tensor,
    gain: Tensor,
    router: Tensor,
    ids: Tensor,
    weights: Tensor,
    eps: float,
    scaling: float,
    launch: Launch,
) -> None:
    """Write the best experts in order, `ids` (k,) int32, and their `weights` (k,) float32.

    `x`, `gain` (C,), `router` (E, C). A weight is the softmax of all experts, scaled and not normalised
    again. `launch.rows` does not count.
    """
    (experts, width), chosen, device = router.shape, ids.shape[0], x.device
    if not 1 <= chosen <= experts:
        raise ValueError(f"{chosen} experts a token of {experts}")
    expect_all(x.dtype, device, x=(x, (width,)), gain=(gain, (width,)), router=(router, (experts, width)))
    expect("ids", ids, (chosen,), torch.int32, device)
    expect("weights", weights, (chosen,), torch.float32, device)
    _route[(1,)](
        x, gain, router, ids, weights, eps, scaling,
        WIDTH=width, EXPERTS=experts, EVERY=triton.next_power_of_2(experts), CHOSEN=chosen,
        CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def router_logits_reference(x: Tensor, gain: Tensor, router: Tensor, eps: float) -> Tensor:
    """Reference in plain torch. Returns the router's logits, (E,) float32."""
    return product_reference(router, rms_norm_reference(x, gain, eps)).to(torch.float32)


def route_reference(logits: Tensor, experts: int, scaling: float) -> tuple[Tensor, Tensor]:
    """Reference in plain torch: the best experts in order, (k,) int64, and their weights, (k,) float32."""
    order = torch.argsort(logits, descending=True, stable=True)[:experts]
    return order, logits.softmax(dim=-1, dtype=torch.float32)[order] * scaling

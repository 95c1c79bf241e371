# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Which experts one token goes to, from the router's logits.

Letters: E experts, k experts a token.

An expert's rank is how many others come before it: a larger logit, or an equal one and a lower id. One warp
compares all E x E pairs at once. It is a kernel of its own although it does so little: done again in every
program of the expert products, it cost them three times their weights' time on an H200.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, expect


@triton.jit
def _route(
    logits, ids, weights, scaling,
    EXPERTS: tl.constexpr, EVERY: tl.constexpr, CHOSEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    mine, theirs = tl.arange(0, EVERY), tl.arange(0, EVERY)
    await_previous(PDL)
    my_logit = tl.load(logits + mine, mask=mine < EXPERTS, other=float("-inf"))
    their_logit = tl.load(logits + theirs, mask=theirs < EXPERTS, other=float("-inf"))
    # NaN would rank none or all: as the least it leaves a rank to each.
    my_logit = tl.where(my_logit == my_logit, my_logit, float("-inf"))
    their_logit = tl.where(their_logit == their_logit, their_logit, float("-inf"))
    larger = their_logit[None, :] > my_logit[:, None]
    earlier = (their_logit[None, :] == my_logit[:, None]) & (theirs[None, :] < mine[:, None])
    rank = tl.sum((larger | earlier).to(tl.int32), axis=1)
    top = tl.max(my_logit, axis=0)
    exponents = tl.exp(my_logit - tl.where(top == float("-inf"), 0.0, top))
    chosen = (mine < EXPERTS) & (rank < CHOSEN)
    tl.store(ids + rank, mine, mask=chosen)
    tl.store(weights + rank, exponents / tl.sum(exponents, axis=0) * scaling, mask=chosen)


def route(logits: Tensor, ids: Tensor, weights: Tensor, scaling: float, launch: Launch) -> None:
    """Write the best experts in order, `ids` (k,) int32, and their `weights` (k,) float32.

    `logits` (E,) float32. A weight is the softmax of all experts, scaled and not normalised again. Raises
    ValueError when these do not fit each other.
    """
    (experts,), (chosen,), device = logits.shape, ids.shape, logits.device
    if not 1 <= chosen <= experts:
        raise ValueError(f"{chosen} experts a token of {experts}")
    expect("logits", logits, (experts,), torch.float32, device)
    expect("ids", ids, (chosen,), torch.int32, device)
    expect("weights", weights, (chosen,), torch.float32, device)
    _route[(1,)](
        logits, ids, weights, scaling,
        EXPERTS=experts, EVERY=triton.next_power_of_2(experts), CHOSEN=chosen, **launch.options(),
    )  # fmt: skip


def route_reference(logits: Tensor, experts: int, scaling: float) -> tuple[Tensor, Tensor]:
    """The best experts in order and their weights: (E,) -> (k,) int64, (k,) float32."""
    order = torch.argsort(logits, descending=True, stable=True)[:experts]
    return order, logits.softmax(dim=-1, dtype=torch.float32)[order] * scaling

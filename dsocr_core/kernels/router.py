# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Which experts a token goes to, worked out from the router's logits inside each kernel that asks.

Letters: E experts, k experts a token.

An expert's rank is how many others come before it: a larger logit, or an equal one and a lower id. All E x E
pairs are compared at once, which is one sum where a search for the best k would be k of them in a row.
The softmax only grows with the logit, so it does not enter the choice.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def ranks(logits, EXPERTS: tl.constexpr, EVERY: tl.constexpr):
    """Of each expert, 0 being the best: (EVERY,) int32; from EXPERTS on EVERY."""
    mine, theirs = tl.arange(0, EVERY), tl.arange(0, EVERY)
    my_logit = tl.load(logits + mine, mask=mine < EXPERTS, other=float("-inf"), cache_modifier=".cg")
    their_logit = tl.load(logits + theirs, mask=theirs < EXPERTS, other=float("-inf"), cache_modifier=".cg")
    larger = their_logit[None, :] > my_logit[:, None]
    earlier = (their_logit[None, :] == my_logit[:, None]) & (theirs[None, :] < mine[:, None])
    rank = tl.sum((larger | earlier).to(tl.int32), axis=1)
    return tl.where(mine < EXPERTS, rank, EVERY)


@triton.jit
def chosen_expert(ranks_are_slot, axis: tl.constexpr, EXPERTS: tl.constexpr, ids):
    """The one expert that is marked along `axis`."""
    # NaN logits mark none or many: whatever comes out must be an expert, or the load after it faults.
    return tl.minimum(tl.sum(tl.where(ranks_are_slot, ids, 0), axis=axis), EXPERTS - 1)


@triton.jit
def gate_weights(logits, scaling, EXPERTS: tl.constexpr, EVERY: tl.constexpr):
    """The float32 softmax of all experts, scaled and not normalised again: (EVERY,)."""
    expert = tl.arange(0, EVERY)
    logit = tl.load(logits + expert, mask=expert < EXPERTS, other=float("-inf"), cache_modifier=".cg")
    exponents = tl.exp(logit - tl.max(logit, axis=0))
    return exponents / tl.sum(exponents, axis=0) * scaling


def route_reference(logits: Tensor, experts: int, scaling: float) -> tuple[Tensor, Tensor]:
    """The best experts in order and their weights: (E,) -> (k,) int64, (k,) float32."""
    order = torch.argsort(logits, descending=True, stable=True)[:experts]
    return order, logits.softmax(dim=-1, dtype=torch.float32)[order] * scaling

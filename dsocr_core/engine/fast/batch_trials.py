"""Trials of faster forms for several rows a slot: taken where they give the bits of one row a slot.

Which kernel the library takes for a product, and so the order of its sums, follows from the shapes; a tile of
the experts' products may be larger where the matrix units sum alike in both. Neither is promised, so both are
tried on random rows before they are used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsocr_core.engine.fast.weights import Experts
from dsocr_core.kernels.launch import Tile
from dsocr_core.kernels.prefill.expert_order import order_by_expert
from dsocr_core.kernels.prefill.grouped_experts import grouped_down, grouped_gate_up

Tiles = tuple[Tile, Tile]
"""Launches of the experts' gate and up, and of down."""


def one_product_is_alike(x: Tensor, weight: Tensor, at_once: int) -> bool:
    """Tell whether `x` (R, K) by `weight` (M, K) is, bit for bit, what it is `at_once` rows at a time."""
    tried = _random(x)
    apart = torch.cat([torch.mm(some, weight.t()) for some in torch.split(tried, at_once)])
    return torch.equal(torch.mm(tried, weight.t()), apart)


def tiles_are_alike(y: Tensor, chosen: int, experts: Experts, one: Tiles, other: Tiles) -> bool:
    """Tell whether rows `y` (R, C), each to as many `chosen` experts, give the same bits in both tiles."""
    count, inner, width = len(y) * chosen, experts.gate.shape[1], y.shape[1]
    generator = torch.Generator(y.device).manual_seed(1)
    ranks = torch.rand(len(y), len(experts.gate), generator=generator, device=y.device)
    order = torch.empty(count, dtype=torch.int32, device=y.device)
    starts = torch.empty(len(experts.gate) + 1, dtype=torch.int32, device=y.device)
    order_by_expert(ranks.topk(chosen, dim=1).indices.to(torch.int32), order, starts)
    found = []
    for gate_up, down in (one, other):
        gated, routed = y.new_zeros(count, inner), y.new_zeros(len(y), chosen, width)
        grouped_gate_up(_random(y), order, starts, experts.gate, experts.up, gated, gate_up)
        grouped_down(gated, order, starts, experts.down, routed, down)
        found.append((gated, routed))
    return all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def _random(like: Tensor) -> Tensor:
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.empty_like(like).normal_(generator=generator)

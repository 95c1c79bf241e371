"""Routing, ordering and the grouped products of many tokens, against plain references and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsocr_core.kernels.launch import Tile
from dsocr_core.kernels.prefill.add_norm import add_and_norm, add_and_norm_reference
from dsocr_core.kernels.prefill.expert_order import order_by_expert, order_by_expert_reference
from dsocr_core.kernels.prefill.grouped_experts import (
    grouped_down,
    grouped_down_reference,
    grouped_gate_up,
    grouped_gate_up_reference,
)
from dsocr_core.kernels.prefill.route_tokens import route_tokens, route_tokens_reference
from dsocr_core.models.blocks.layers import RmsNorm

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
EPS = 1e-6


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator)


def poison(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=dtype, device=device)
    return torch.full(shape, -7, dtype=dtype, device=device)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    tolerance = 1e-5 if expected.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def ordered(
    chosen: Tensor, experts: int, order: Callable[..., None] = order_by_expert_reference
) -> tuple[Tensor, Tensor]:
    slots = poison(chosen.numel(), dtype=torch.int32, device=chosen.device)
    starts = poison(experts + 1, dtype=torch.int32, device=chosen.device)
    order(chosen, slots, starts)
    return slots, starts


@pytest.mark.parametrize(("tokens", "each", "experts"), [(5, 2, 4), (4000, 3, 7), (1, 1, 1), (2, 8, 8)])
def test_slots_are_ordered_by_expert(tokens: int, each: int, experts: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(tokens)
    chosen = torch.randint(0, experts, (tokens, each), generator=generator, dtype=torch.int32)
    if experts > 4:
        chosen[chosen == 3] = 5  # an expert that nobody chose
    chosen = chosen.to(device)
    found = ordered(chosen, experts, order_by_expert), ordered(chosen, experts, order_by_expert_reference)
    assert all(map(torch.equal, *found))


@DTYPES
@pytest.mark.parametrize(
    ("tokens", "width", "experts", "each"), [(19, 64, 4, 2), (33, 320, 8, 2), (3, 60, 7, 7), (5, 24, 64, 6)]
)
def test_router_matches_its_reference(
    tokens: int, width: int, experts: int, each: int, dtype: torch.dtype, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(width)
    x = normal(generator, tokens, width).to(device, dtype)
    router = (normal(generator, experts, width) / math.sqrt(width)).to(device, dtype)
    chosen = poison(tokens, each, dtype=torch.int32, device=device)
    weights = poison(tokens, each, dtype=torch.float32, device=device)
    route_tokens(x, router, chosen, weights, 1.5)
    ids, expected = torch.empty_like(chosen), torch.empty_like(weights)
    route_tokens_reference(x, router, ids, expected, 1.5)
    assert torch.equal(chosen, ids)
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)


def test_equal_logits_go_to_the_lowest_ids(device: torch.device) -> None:
    """By hand, in whole numbers: logits 2, 1, 2, 3, 2."""
    x = torch.ones(2, 16, device=device)
    router = torch.tensor([2.0, 1.0, 2.0, 3.0, 2.0], device=device)[:, None].expand(5, 16) / 16
    chosen = poison(2, 3, dtype=torch.int32, device=device)
    weights = poison(2, 3, dtype=torch.float32, device=device)
    route_tokens(x, router.contiguous(), chosen, weights, 1.0)
    assert chosen.tolist() == [[3, 0, 2], [3, 0, 2]]


def test_nan_tokens_still_go_to_experts(device: torch.device) -> None:
    x = poison(3, 24, dtype=torch.float32, device=device)
    chosen = poison(3, 4, dtype=torch.int32, device=device)
    weights = poison(3, 4, dtype=torch.float32, device=device)
    route_tokens(x, torch.ones(7, 24, device=device), chosen, weights, 1.0)
    assert ((chosen >= 0) & (chosen < 7)).all()


# (tokens, hidden, experts, k, expert width, tile)
GROUPED = [
    (11, 64, 4, 2, 48, Tile(16, 16, 32)),
    (40, 320, 8, 2, 224, Tile(16, 128, 64)),
    (9, 60, 5, 3, 43, Tile(16, 32, 16)),
    (1, 64, 8, 2, 48, Tile(32, 64, 32)),
    (50, 32, 3, 1, 16, Tile(64, 16, 32)),
]


@DTYPES
@pytest.mark.parametrize(("tokens", "width", "experts", "each", "inner", "tile"), GROUPED)
def test_grouped_products_match_their_reference(
    tokens: int, width: int, experts: int, each: int, inner: int, tile: Tile,
    dtype: torch.dtype, device: torch.device,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(tokens)
    x = normal(generator, tokens, width).to(device, dtype)
    gate, up = ((normal(generator, experts, inner, width) / math.sqrt(width)).to(device, dtype) for _ in "gu")
    down = (normal(generator, experts, width, inner) / math.sqrt(inner)).to(device, dtype)
    chosen = torch.stack([torch.randperm(experts, generator=generator)[:each] for _ in range(tokens)])
    if experts == 8:
        chosen[chosen == 2] = 6  # nobody goes to expert 2, more than one tile to 6
    slots, starts = ordered(chosen.to(device, torch.int32), experts)

    gated = poison(tokens * each, inner, dtype=dtype, device=device)
    grouped_gate_up(x, slots, starts, gate, up, gated, tile)
    grouped_gate_up_reference(x, slots, starts, gate, up, expected := torch.empty_like(gated))
    assert_close(gated, expected)
    for row, slot in enumerate(slots.tolist()):  # by hand: the row's own token and expert
        expert = int(chosen.view(-1)[slot])
        one = torch.nn.functional.silu(gate[expert].float() @ x[slot // each].float())
        one = one * (up[expert].float() @ x[slot // each].float())
        assert_close(expected[row], one.to(dtype))

    routed = poison(tokens, each, width, dtype=dtype, device=device)
    grouped_down(expected, slots, starts, down, routed, tile)
    grouped_down_reference(expected, slots, starts, down, wanted := torch.empty_like(routed))
    assert_close(routed, wanted)
    place = int((slots == 0).nonzero())
    first = down[int(chosen[0, 0])].float() @ expected[place].float()
    assert_close(routed[0, 0], first.to(dtype))


@DTYPES
@pytest.mark.parametrize(("tokens", "width", "each"), [(5, 64, 2), (3, 60, 0), (2, 320, 6)])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("with_added", [False, True])
def test_add_and_norm_matches_its_reference(
    tokens: int, width: int, each: int, centred: bool, with_added: bool, dtype: torch.dtype,
    device: torch.device,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(width)
    x, other = (normal(generator, tokens, width).to(device, dtype) for _ in "xa")
    gain, shift = (normal(generator, width).to(device, dtype) for _ in "gb")
    added, bias = other if with_added else None, shift if centred else None
    routed = normal(generator, tokens, each, width).to(device, dtype) if each else None
    weights = torch.rand(tokens, each, generator=generator).to(device) if each else None
    summed, normed = x.clone(), torch.empty_like(x)
    add_and_norm_reference(summed, gain, normed, EPS, added, routed, weights, bias)
    y = poison(tokens, width, dtype=dtype, device=device)
    add_and_norm(x, gain, y, EPS, added, routed, weights, bias)
    assert_close(x, summed)
    assert_close(y, normed)
    if not centred:
        norm = RmsNorm(width, EPS).to(device, dtype).requires_grad_(False)
        norm.weight.copy_(gain)
        assert_close(y, norm(summed))


def test_a_float32_sum_with_bfloat16_parts(device: torch.device) -> None:
    """The sum keeps what bfloat16 would lose."""
    generator = torch.Generator().manual_seed(3)
    x = normal(generator, 3, 64).to(device)
    added, gain, bias = (
        normal(generator, *shape).to(device, torch.bfloat16) for shape in ((3, 64), (64,), (64,))
    )
    exact = x + added.float()
    summed, normed = x.clone(), torch.empty_like(added)
    add_and_norm_reference(summed, gain, normed, EPS, added, bias=bias)
    assert torch.equal(summed, exact)
    add_and_norm(x, gain, added, EPS, added, bias=bias)
    assert_close(x, exact)
    assert_close(added, normed)

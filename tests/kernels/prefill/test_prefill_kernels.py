"""The kernels of vision and prompt, against their references and by hand, on odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsocr_core.kernels.launch import Tile
from dsocr_core.kernels.prefill.activations import (
    gated,
    gated_reference,
    quick_gelu,
    quick_gelu_reference,
)
from dsocr_core.kernels.prefill.add_norm import add_and_norm, add_and_norm_reference
from dsocr_core.kernels.prefill.expert_order import order_by_expert, order_by_expert_reference
from dsocr_core.kernels.prefill.grouped_experts import (
    grouped_down,
    grouped_down_reference,
    grouped_gate_up,
    grouped_gate_up_reference,
)
from dsocr_core.kernels.prefill.rotary_cache import rotate_and_cache, rotate_and_cache_reference
from dsocr_core.kernels.prefill.route_tokens import route_tokens, route_tokens_reference
from dsocr_core.models.blocks.attention import Rotary
from dsocr_core.models.blocks.layers import RmsNorm
from dsocr_core.models.family import parse_config
from tests.kernels.random_tensors import DTYPES, Random, assert_close
from tests.support.seeded_weights import tiny_config

EPS = 1e-6


def unset(*shape: int, device: torch.device) -> Tensor:
    return torch.full(shape, -7, dtype=torch.int32, device=device)


def ordered(
    chosen: Tensor, experts: int, order: Callable[..., None] = order_by_expert_reference
) -> tuple[Tensor, Tensor]:
    slots, starts = (unset(n, device=chosen.device) for n in (chosen.numel(), experts + 1))
    order(chosen, slots, starts)
    return slots, starts


@pytest.mark.parametrize(("tokens", "each", "experts"), [(5, 2, 4), (4000, 3, 7), (1, 1, 1), (2, 8, 8)])
def test_slots_are_ordered_by_expert(tokens: int, each: int, experts: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(tokens)
    chosen = torch.randint(0, experts, (tokens, each), generator=generator, dtype=torch.int32)
    if experts > 4:
        chosen[chosen == 3] = 5  # an expert that nobody chose
    chosen = chosen.to(device)
    found = ordered(chosen, experts, order_by_expert), ordered(chosen, experts)
    assert all(map(torch.equal, *found))


@DTYPES
@pytest.mark.parametrize(
    ("tokens", "width", "experts", "each"), [(19, 64, 4, 2), (33, 320, 8, 2), (3, 60, 7, 7), (5, 24, 64, 6)]
)
def test_router_matches_its_reference(
    tokens: int, width: int, experts: int, each: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(width, dtype, device)
    x, router = new.normal(tokens, width), new.matrix(experts, width)
    found = []
    for route in (route_tokens, route_tokens_reference):
        found.append((unset(tokens, each, device=device), new.poison(tokens, each, dtype=torch.float32)))
        route(x, router, *found[-1], 1.5)
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)


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
    tokens: int, width: int, experts: int, each: int, inner: int, tile: Tile, dtype: torch.dtype,
    device: torch.device,
) -> None:  # fmt: skip
    new = Random(tokens, dtype, device)
    x, gate, up = new.normal(tokens, width), *(new.matrix(experts, inner, width) for _ in "gu")
    down = new.matrix(experts, width, inner)
    chosen = torch.stack([new.some(each, experts) for _ in range(tokens)])
    if experts == 8:
        chosen[chosen == 2] = 6  # nobody goes to expert 2, more than one tile to 6
    slots, starts = ordered(chosen, experts)

    made, expected = (new.poison(tokens * each, inner) for _ in "me")
    grouped_gate_up(x, slots, starts, gate, up, made, tile)
    grouped_gate_up_reference(x, slots, starts, gate, up, expected)
    assert_close(made, expected)
    for row, slot in enumerate(slots.tolist()):  # by hand: the row's own token and expert
        expert, token = int(chosen.view(-1)[slot]), x[slot // each].float()
        one = torch.nn.functional.silu(gate[expert].float() @ token) * (up[expert].float() @ token)
        assert_close(expected[row], one.to(dtype))

    routed, wanted = (new.poison(tokens, each, width) for _ in "rw")
    grouped_down(expected, slots, starts, down, routed, tile)
    grouped_down_reference(expected, slots, starts, down, wanted)
    assert_close(routed, wanted)
    place = int((slots == 0).nonzero())
    assert_close(routed[0, 0], (down[int(chosen[0, 0])].float() @ expected[place].float()).to(dtype))


@DTYPES
@pytest.mark.parametrize(("tokens", "width", "each"), [(5, 64, 2), (3, 60, 0), (2, 320, 6)])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("with_added", [False, True])
def test_add_and_norm_matches_its_reference(
    tokens: int, width: int, each: int, centred: bool, with_added: bool, dtype: torch.dtype,
    device: torch.device,
) -> None:  # fmt: skip
    new = Random(width, dtype, device)
    x, added = new.normal(tokens, width), new.normal(tokens, width) if with_added else None
    gain, bias = new.normal(width), new.normal(width) if centred else None
    routed = new.normal(tokens, each, width) if each else None
    weights = new.normal(tokens, each).float().abs() if each else None
    (summed, normed), y = (x.clone(), new.poison(tokens, width)), new.poison(tokens, width)
    add_and_norm_reference(summed, gain, normed, EPS, added, routed, weights, bias)
    add_and_norm(x, gain, y, EPS, added, routed, weights, bias)
    assert_close(x, summed)
    assert_close(y, normed)
    if not centred:
        norm = RmsNorm(width, EPS).to(device, dtype).requires_grad_(False)
        norm.weight.copy_(gain)
        assert_close(y, norm(summed))


@DTYPES
@pytest.mark.parametrize(
    ("tokens", "heads", "groups", "dim", "positions", "start"),
    [(7, 5, 5, 64, 20, 0), (3, 2, 2, 12, 9, 6), (1, 10, 10, 128, 4, 3), (5, 6, 2, 16, 9, 1)],
)
@pytest.mark.parametrize("rotate", [rotate_and_cache, rotate_and_cache_reference], ids=["kernel", "plain"])
def test_rotated_and_cached_rows_are_the_eager_engines(
    rotate: Callable[..., None], tokens: int, heads: int, groups: int, dim: int, positions: int, start: int,
    dtype: torch.dtype, device: torch.device,
) -> None:  # fmt: skip
    new, end = Random(dim, dtype, device), start + tokens
    qkv = new.normal(tokens, heads + 2 * groups, dim)
    config = replace(parse_config(tiny_config()).decoder, hidden_size=heads * dim, heads=heads)
    rotary = Rotary(config, positions, torch.float32, dtype, device)
    # The heads of one sequence in a cache of two lie apart.
    keys, values = (new.normal(groups, 2, positions, dim)[:, 1] for _ in "kv")
    before, q = (keys.clone(), values.clone()), new.poison(tokens, heads, dim)
    rotate(qkv, rotary.cos, rotary.sin, q, keys, values, start)
    own, key, value = qkv.split([heads, groups, groups], dim=1)
    wanted = [rotary.rotate(part[None].transpose(1, 2), start)[0] for part in (own, key)]
    found = q.transpose(0, 1), keys[:, start:end], values[:, start:end]
    for actual, eager in zip(found, [*wanted, value.transpose(0, 1)], strict=True):
        assert_close(actual, eager)
    others = [i for i in range(positions) if not start <= i < end]
    assert torch.equal(keys[:, others], before[0][:, others])
    assert torch.equal(values[:, others], before[1][:, others])


@DTYPES
@pytest.mark.parametrize(("tokens", "inner"), [(3, 43), (2, 1792)])
def test_activations_match_their_references(
    tokens: int, inner: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(2, dtype, device)
    x, pairs = 4 * new.normal(tokens, inner), new.normal(tokens, 2 * inner)
    quick_gelu_reference(expected := x.clone())
    quick_gelu(x)
    assert_close(x, expected)
    out, wanted = new.poison(tokens, inner), new.poison(tokens, inner)
    gated(pairs, out)
    gated_reference(pairs, wanted)
    assert_close(out, wanted)

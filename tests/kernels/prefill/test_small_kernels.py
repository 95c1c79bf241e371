"""The small kernels of vision and prefill, against plain references, on fresh seeded inputs and odd sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsocr_core.kernels.prefill.activations import (
    gated,
    gated_reference,
    quick_gelu,
    quick_gelu_reference,
)
from dsocr_core.kernels.prefill.rotary_cache import turn_and_cache, turn_and_cache_reference
from dsocr_core.models.blocks.attention import Rotary
from dsocr_core.models.family import parse_config
from tests.support.seeded_weights import tiny_config

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    return {"rtol": limit, "atol": limit}


@DTYPES
@pytest.mark.parametrize(
    ("tokens", "heads", "groups", "dim", "positions", "start"),
    [(7, 5, 5, 64, 20, 0), (3, 2, 2, 12, 9, 6), (1, 10, 10, 128, 4, 3), (5, 6, 2, 16, 9, 1)],
)
def test_turn_and_cache_matches_its_reference(
    tokens: int, heads: int, groups: int, dim: int, positions: int, start: int, dtype: torch.dtype,
    device: torch.device,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(dim)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    qkv = normal(tokens, heads + 2 * groups, dim)
    config = parse_config(tiny_config()).decoder
    config = replace(config, hidden_size=heads * dim, heads=heads)
    rotary = Rotary(config, positions, torch.float32, dtype, device)
    # The heads of one sequence in a cache of two lie apart.
    keys, values = (normal(groups, 2, positions, dim)[:, 1] for _ in "kv")
    before, end, own = (keys.clone(), values.clone()), start + tokens, qkv[:, heads:]
    eager = [
        *(rotary.rotate(part[None].transpose(1, 2), start)[0] for part in (qkv[:, :heads], own[:, :groups])),
        own[:, groups:].transpose(0, 1),
    ]
    others = [i for i in range(positions) if not start <= i < end]
    for turn in (turn_and_cache, turn_and_cache_reference):
        q = torch.full((tokens, heads, dim), float("nan"), dtype=dtype, device=device)
        keys[:, start:end], values[:, start:end] = float("nan"), float("nan")
        turn(qkv, rotary.cos, rotary.sin, q, keys, values, start)
        found = q.transpose(0, 1), keys[:, start:end], values[:, start:end]
        for actual, wanted in zip(found, eager, strict=True):
            torch.testing.assert_close(actual, wanted, **tolerance(dtype))
        assert torch.equal(keys[:, others], before[0][:, others])
        assert torch.equal(values[:, others], before[1][:, others])


@DTYPES
@pytest.mark.parametrize("shape", [(3, 7), (2, 5, 450)])
def test_quick_gelu_matches_its_reference(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 4).to(device, dtype)
    quick_gelu_reference(expected := x.clone())
    quick_gelu(x)
    torch.testing.assert_close(x, expected, **tolerance(dtype))


@DTYPES
@pytest.mark.parametrize(("tokens", "inner"), [(3, 43), (2, 1792)])
def test_gated_matches_its_reference(
    tokens: int, inner: int, dtype: torch.dtype, device: torch.device
) -> None:
    pairs = torch.randn(tokens, 2 * inner, generator=torch.Generator().manual_seed(2)).to(device, dtype)
    out = torch.full((tokens, inner), float("nan"), dtype=dtype, device=device)
    gated(pairs, out)
    gated_reference(pairs, wanted := torch.empty_like(out))
    torch.testing.assert_close(out, wanted, **tolerance(dtype))

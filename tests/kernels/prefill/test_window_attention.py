"""Window attention against its reference and against the eager tower's own attention."""

from __future__ import annotations

import pytest
import torch

from dsocr_core.kernels.launch import Tile
from dsocr_core.kernels.prefill.window_attention import (
    position_tables,
    position_terms,
    window_attention,
    window_attention_reference,
)
from dsocr_core.models.blocks.sam import SamAttention, join_windows, split_windows
from dsocr_core.models.config import SamConfig
from tests.kernels.random_tensors import DTYPES

# (views, grid side, window side, heads, head dim, tile)
SIZES = [
    (1, 8, 8, 2, 16, Tile(16, 16)),  # global, two key rows a block
    (2, 10, 4, 1, 24, Tile(16, 16)),  # padded windows, whole windows in a block
    (1, 9, 3, 2, 16, Tile(32, 16)),  # windows that fit, a block with empty places
    (1, 16, 14, 2, 8, Tile(64, 64)),  # the published window, mostly padding
    (1, 11, 11, 1, 64, Tile(64, 64)),  # five rows a block, three times
    (1, 5, 5, 3, 16, Tile(16, 16)),
    (1, 16, 16, 1, 16, Tile(128, 16)),  # one key row a block
]


@DTYPES
@pytest.mark.parametrize(("views", "grid", "window", "heads", "dim", "tile"), SIZES)
def test_as_the_eager_towers_attention(
    views: int, grid: int, window: int, heads: int, dim: int, tile: Tile, dtype: torch.dtype,
    device: torch.device,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(grid)
    width = heads * dim
    config = SamConfig(width, 1, heads, (), (8, 8), 16 * grid)
    attention = SamAttention(config, window).requires_grad_(False)
    for parameter in attention.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    attention.proj.weight.copy_(torch.eye(width))
    attention.proj.bias.zero_()
    attention.to(device, dtype)
    x = torch.randn(views, grid, grid, width, generator=generator).to(device, dtype)
    wide = attention.float()
    expected = join_windows(wide(split_windows(x.float(), window)), window, grid, grid).reshape(-1, width)
    attention.to(dtype)

    qkv = attention.qkv(x).view(-1, 3, heads, dim)
    tables = position_tables(attention.rel_pos_h, attention.rel_pos_w)
    terms = position_terms(qkv, tables)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for attend in (window_attention, window_attention_reference):
        out = torch.full((views * grid**2, width), float("nan"), dtype=dtype, device=device)
        attend(qkv, attention.qkv.bias, terms, out, grid, window, tile)
        torch.testing.assert_close(out.float(), expected, rtol=tolerance, atol=tolerance)

"""Attention of views that see all, or whose first half sees itself, against a softmax written out."""

from __future__ import annotations

import pytest
import torch

from dsocr_core.kernels.prefill.prefix_attention import prefix_attention, prefix_attention_reference
from tests.kernels.random_tensors import DTYPES, Random


@DTYPES
@pytest.mark.parametrize("halves", [True, False])
@pytest.mark.parametrize(("heads", "groups", "dim"), [(6, 2, 8), (2, 2, 16), (3, 1, 24)])
def test_views_of_several_lengths_see_what_they_may(
    heads: int, groups: int, dim: int, halves: bool, dtype: torch.dtype, device: torch.device
) -> None:
    """Views of 6, 150 and 64 rows: less than a block, more than two, and as many as one. Halves have their
    keys head by head, views that see all have theirs beside the queries.
    """
    new, lengths = Random(heads, dtype, device), (6, 150, 64)
    starts, rows = torch.tensor([0, 6, 156, 220], dtype=torch.int32, device=device), sum(lengths)
    q, out = new.normal(rows, heads, dim), new.poison(rows, heads, dim)
    keys, values = new.normal(groups, rows, dim), new.normal(groups, rows, dim)
    if not halves:
        together = torch.cat([q, keys.transpose(0, 1), values.transpose(0, 1)], dim=1)
        q, keys, values = together.split([heads, groups, groups], dim=1)
        keys, values = keys.transpose(0, 1), values.transpose(0, 1)

    wanted = torch.empty(rows, heads, dim, device=device)
    for row in range(rows):
        start, length = next((s, n) for s, n in zip((0, 6, 156), lengths, strict=True) if s <= row < s + n)
        end = start + length
        if halves:
            end = start + length // 2 if row - start < length // 2 else row + 1
        for head in range(heads):
            k, v = (part[head * groups // heads, start:end].float() for part in (keys, values))
            weights = (k @ q[row, head].float() / dim**0.5).softmax(0)
            wanted[row, head] = weights @ v
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for attend in (prefix_attention, prefix_attention_reference):
        attend(q, keys, values, out.fill_(float("nan")), starts, 150, halves)
        torch.testing.assert_close(out.float(), wanted, **tolerance)

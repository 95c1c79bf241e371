"""Seeded inputs of the kernel tests, and how near a kernel comes to its plain reference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dsocr_core.kernels.state import state_row
from dsocr_core.reading.records import NgramPolicy

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


class Random:
    """Seeded tensors of one dtype on one device."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator).to(self.device, self.dtype)

    def matrix(self, *shape: int) -> Tensor:
        """Scaled by fan-in, so that products stay near 1."""
        return (torch.randn(shape, generator=self.generator) / math.sqrt(shape[-1])).to(
            self.device, self.dtype
        )

    def poison(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.full(shape, float("nan"), dtype=dtype or self.dtype, device=self.device)

    def some(self, count: int, of: int) -> Tensor:
        """Different ids below `of`, (count,) int32."""
        ids = torch.randperm(of, generator=self.generator)[:count]
        return ids.to(self.device, torch.int32)

    def state(
        self,
        position: int,
        last: int = 10**6,
        done: int = 0,
        ngram: NgramPolicy | int = 0,
        first_new: int = 0,
    ) -> Tensor:
        return state_rows(self.device, (position, last, done, ngram, first_new))[0]


def state_rows(device: torch.device, *rows: tuple[int, int, int, NgramPolicy | int, int]) -> Tensor:
    """A state of each (position, last, done, n-gram policy, first new position): (S, SIZE) int32."""
    states = [
        state_row(position, last, done, NgramPolicy.of(ngram), first_new)
        for position, last, done, ngram, first_new in rows
    ]
    return torch.tensor(states, dtype=torch.int32, device=device)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Summed in another order: float32 to 1e-5, bfloat16 to a few of its last places."""
    tolerance = 1e-5 if expected.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

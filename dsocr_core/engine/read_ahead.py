"""Measures whether this CPU gains by reading a weight into its cache before a product of one row."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from dsocr_core.models.blocks import token_step
from dsocr_core.models.blocks.decoder import Decoder

TIMED_BYTES, TIMINGS = 2**24, 3
"""Bytes of weights to time with, more than a core's L2 cache; number of timings."""

_timed = False


def choose_once(decoder: Decoder) -> None:
    """Time both ways, with weights that no cache holds, and set the faster one: 20 ms, once a process."""
    global _timed
    if _timed:
        return
    best, weights = [float("inf")] * 2, list(_some_weights(decoder))
    for _ in range(TIMINGS):
        for ahead in (False, True):
            products = [(token_step.product_with(weight, ahead), *_row(weight)) for weight in weights]
            started = time.perf_counter()
            for product, x, out in products:
                product(x, out)
            best[ahead] = min(best[ahead], time.perf_counter() - started)
    token_step.reads_ahead, _timed = best[True] < best[False], True


def _some_weights(decoder: Decoder) -> Iterator[Tensor]:
    """Weights (out, in) that might be read ahead, at most `TIMED_BYTES` of them."""
    left = TIMED_BYTES
    for parameter in decoder.layers.parameters():
        for weight in parameter.detach().unbind() if parameter.ndim == 3 else [parameter.detach()]:
            left -= weight.nbytes
            if left < 0:
                return
            if weight.ndim == 2 and weight.nbytes <= token_step.READ_AHEAD_BYTES:
                yield weight


def _row(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Input (1, in) and output (1, out) of a product."""
    return torch.ones(1, weight.shape[1]), torch.empty(1, weight.shape[0])

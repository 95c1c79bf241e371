"""Two dumps compared tensor by tensor: bits, ULP, and the size and spread of each difference.

Letters: R rows (tokens, patches), C width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.trace_records import RouterChange, TensorDifference
from dsocr_core.trace.names import NameOrder, in_vision

CHUNK = 1 << 22
"""Elements that are compared at once; with float32 copies they take less than 200 MB."""
BINS = 8
TIE = 0.03
"""Difference of two experts' weights below which they tie: some units of a bfloat16 logit."""

_FRACTION_BITS = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}


@dataclass(frozen=True)
class Pattern:
    """How a difference is spread."""

    channels_share: float
    """Share of the channels that differ."""
    profile: tuple[float, ...]
    """Errors of eighths of the rows, first to last; empty for fewer than eight rows."""


@dataclass(frozen=True)
class Measured:
    """A compared pair of tensors. `pattern` is None where they are equal."""

    row: TensorDifference
    key: str
    shape: tuple[int, ...]
    pattern: Pattern | None
    changed: RouterChange | None = None


def compare(
    a: Dump, b: Dump, device: torch.device | None = None, on_call: Callable[[int], None] = lambda call: None
) -> Iterator[Measured]:
    """Compare every pair of tensors that both dumps have, in the order of computing, one pair in memory."""
    for call in range(min(a.calls, b.calls)):
        on_call(call)
        theirs = set(b.keys(call))
        for key in sorted(a.keys(call), key=NameOrder(a.keys(call))):
            if key in theirs:
                yield _measured(a, b, call, key, device or torch.device("cpu"))


def unpaired(a: Dump, b: Dump) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that only one side has, in calls that both have."""
    calls = range(min(a.calls, b.calls))
    keys = ((key for call in calls for key in dump.keys(call)) for dump in (a, b))
    of_a, of_b = (dict.fromkeys(key.partition("@")[0] for key in each) for each in keys)
    return tuple(name for name in of_a if name not in of_b), tuple(name for name in of_b if name not in of_a)


def _measured(a: Dump, b: Dump, call: int, key: str, device: torch.device) -> Measured:
    x, y = a.tensor(call, key), b.tensor(call, key)
    name, _, view = key.partition("@")
    row, pattern = compare_tensors(x, y, name, call, int(view or 0), device)
    changed = None
    if row.differs and name.endswith("router.ids") and x.shape == y.shape:
        weights = key.replace("router.ids", "router.weights")
        if weights in a.keys(call) and weights in b.keys(call):
            changed = _router_change(name, call, x, y, a.tensor(call, weights), b.tensor(call, weights))
    return Measured(row, key, tuple(x.shape), pattern, changed)


def compare_tensors(
    x: Tensor, y: Tensor, name: str = "", call: int = 0, view: int = 0, device: torch.device | None = None
) -> tuple[TensorDifference, Pattern | None]:
    """Figures of one pair. Of sequences of two lengths the last rows are compared; tensors of other shapes
    differ in every element."""
    dtypes = [str(each.dtype).removeprefix("torch.") for each in (x, y)]
    x, y = (each.reshape(-1, each.shape[-1]) if each.ndim else each.reshape(1, 1) for each in (x, y))
    if x.shape != y.shape and x.shape[1] == y.shape[1] and not in_vision(name):
        rows = min(len(x), len(y))
        x, y = x[-rows:], y[-rows:]
    pattern, figures = None, list[Any]()
    if x.shape != y.shape:
        figures = [1.0, None, None, None]
    elif x.dtype != y.dtype and x.is_floating_point() and y.is_floating_point():
        narrow = min((x.dtype, y.dtype), key=lambda dtype: torch.finfo(dtype).bits)
        # float32 is rounded to the other side's type
        x, y = x.to(narrow), y.to(narrow)
    if not figures and torch.equal(x, y):
        figures = [0.0, 0, 0.0, 0.0]
    elif not figures and not x.is_floating_point():
        figures = [float((x != y).float().mean()), None, None, None]
    elif not figures:
        found = _Sums(x, y, device or x.device)
        of_std = [each / found.std if found.std else None for each in (found.largest, found.rms)]
        figures = [found.share, found.max_ulp if found.finite else None, *of_std]
        pattern = found.pattern if found.share else None
    return TensorDifference(name, call, view, x.numel(), *figures, *dtypes), pattern


class _Sums:
    """Sums over a pair of (R, C) tensors, chunk by chunk."""

    def __init__(self, x: Tensor, y: Tensor, device: torch.device) -> None:
        rows, width = x.shape
        step = max(1, CHUNK // max(1, width))
        parts = [(x[at : at + step], y[at : at + step]) for at in range(0, rows, step)]
        self.std = _std(x for x, _ in parts)
        differing = squares = most_ulps = 0.0
        self.largest, self.finite = 0.0, True
        columns = torch.zeros(width, dtype=torch.bool, device=device)
        per_row = []
        for part_x, part_y in parts:
            one, other = part_x.to(device), part_y.to(device)
            both_nan = one.isnan() & other.isnan()
            differs = (one != other) & ~both_nan  # (r, C)
            wide, wide_other = one.to(torch.float32), other.to(torch.float32)
            gap = (wide - wide_other).abs()
            self.finite = self.finite and bool((gap.isfinite() | ~differs).all())
            gap = torch.where(differs, gap, 0.0).nan_to_num(0.0, 0.0, 0.0)
            differing += float(differs.sum())
            squares += float(gap.square().sum(dtype=torch.float64))
            self.largest = max(self.largest, float(gap.max()))
            most_ulps = max(most_ulps, float((gap / unit(wide, wide_other, x.dtype, self.std)).max()))
            columns |= differs.any(dim=0)
            per_row.append(gap.square().mean(dim=1).cpu())
        self.share = differing / x.numel()
        self.rms = math.sqrt(squares / x.numel())
        self.max_ulp = math.ceil(most_ulps)
        self.pattern = Pattern(float(columns.float().mean()), _profile(torch.cat(per_row), self.std))


def unit(x: Tensor, y: Tensor, dtype: torch.dtype, least: float) -> Tensor:
    """Unit in the last place that `dtype` has at the larger of two float32 values.

    It is never smaller than that of `least`, the tensor's standard deviation: a sum near zero carries the
    rounding of its terms, thousands of its own units.
    """
    size = torch.maximum(x.abs(), y.abs()).nan_to_num(0.0, 0.0, 0.0).clamp_min(max(least, 1e-30))
    _, exponent = torch.frexp(size)  # size = m * 2**e with m in [0.5, 1)
    return torch.ldexp(torch.ones_like(size), exponent - 1 - _FRACTION_BITS.get(dtype, 23))


def _std(parts: Iterator[Tensor]) -> float:
    count, total, squares = 0, 0.0, 0.0
    for part in parts:
        wide = part.to(torch.float32).nan_to_num(0.0, 0.0, 0.0)
        count += wide.numel()
        total += float(wide.sum(dtype=torch.float64))
        squares += float(wide.square().sum(dtype=torch.float64))
    return math.sqrt(max(0.0, squares / count - (total / count) ** 2))


def _profile(per_row: Tensor, std: float) -> tuple[float, ...]:
    if len(per_row) < BINS or not std:
        return ()
    return tuple(float(part.mean().sqrt()) / std for part in per_row.tensor_split(BINS))


def _router_change(
    name: str, call: int, ids_a: Tensor, ids_b: Tensor, weights_a: Tensor, weights_b: Tensor
) -> RouterChange:
    """Whether the router chose other experts (ids rise along a row), and whether by a tie of weights."""
    changed = (ids_a != ids_b).any(dim=1)
    one, other = (x.float().sort(dim=1).values for x in (weights_a[changed], weights_b[changed]))
    ties = ((one - other).abs() <= TIE * torch.maximum(one, other)).all(dim=1)
    return RouterChange(name, call, len(ids_a), int(changed.sum()), int(ties.sum()))

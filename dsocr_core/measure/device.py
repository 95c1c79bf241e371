"""Measured limits of a device: a large copy and a large matrix product."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

REPEAT = 5
_CUDA_COPY_BYTES, _CPU_COPY_BYTES = 2**32, 2**27
"""Bytes to copy: far more than any cache."""
_CUDA_SIDE, _CPU_SIDE = 8192, 1024


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    """Time of what `run` does or queues, by CUDA events, or by the clock on a CPU."""
    if device.type != "cuda":
        started = time.perf_counter()
        run()
        return (time.perf_counter() - started) * 1e3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def copy_bandwidth(device: torch.device, size: int | None = None) -> float:
    """Bytes a second of a large copy on the device, counting reads and writes."""
    size = size or (_CUDA_COPY_BYTES if device.type == "cuda" else _CPU_COPY_BYTES)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2e3 * size / _median_ms(lambda: target.copy_(source), device)


def matmul_rate(device: torch.device, dtype: torch.dtype = torch.bfloat16, side: int | None = None) -> float:
    """FLOPs a second of a large square matrix product. A multiply-add is two."""
    side = side or (_CUDA_SIDE if device.type == "cuda" else _CPU_SIDE)
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(side, side, generator=generator, device=device).to(dtype) for _ in range(2))
    product = a @ b
    return 2e3 * side**3 / _median_ms(lambda: torch.mm(a, b, out=product), device)


def _median_ms(run: Callable[[], object], device: torch.device) -> float:
    return statistics.median(milliseconds(run, device) for _ in range(REPEAT))

# mypy: allow-untyped-defs, allow-untyped-calls
"""Kernels compiled at the same time before they run, which takes a third of the time of one by one.

Triton compiles a kernel at its first launch, and at its first run builds the C program that launches it. Both
leave the interpreter to other threads for most of their time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import torch
from triton.runtime._async_compile import AsyncCompileMode
from triton.runtime.jit import JITFunction

MOST_COMPILERS = 8
"""Most threads that compile. 5 and 12 were slower, 16 slower still: a part holds the interpreter."""
Progress = Callable[[int, int], None]
"""Callback with the number of kernels that are ready, and of all."""
_turn = threading.Lock()  # a second GPU's thread would leave the first one's launches dry for ever


@contextmanager
def compiled_together(device: torch.device, progress: Progress = lambda ready, count: None) -> Iterator[None]:
    """Compile what this thread launches in the block, without running it. All are ready at the block's end.

    Does nothing without CUDA. Tensors hold no results after it; what cannot be compiled fails at its launch.
    """
    if device.type != "cuda":
        yield
        return
    owner = threading.get_ident()

    def launch_dry(kernel: Any, grid: Any) -> Any:
        if threading.get_ident() != owner:
            return launch(kernel, grid)
        return lambda *given, **options: kernel.run(*given, grid=grid, warmup=True, **options)

    with _turn, _Compilers(device, progress) as compilers, AsyncCompileMode(compilers):
        launch, JITFunction.__getitem__ = JITFunction.__getitem__, launch_dry
        try:
            yield
        finally:
            JITFunction.__getitem__ = launch


class _Compilers(ThreadPoolExecutor):
    """Threads that compile kernels for a device."""

    def __init__(self, device: torch.device, progress: Progress) -> None:
        super().__init__(min(MOST_COMPILERS, os.cpu_count() or 1), "compile")
        self._device, self._progress = device, progress
        self._count = self._ready = 0

    def submit(self, compile_kernel: Callable[[], Any], /) -> Future[Any]:  # type: ignore[override]
        self._count += 1
        return super().submit(self._compile_and_load, compile_kernel)

    def _compile_and_load(self, compile_kernel: Callable[[], Any]) -> Any:
        with suppress(Exception), torch.cuda.device(self._device):  # what fails here fails at its launch
            kernel = compile_kernel()
            kernel.run  # noqa: B018 - builds its launcher and loads it
            self._ready += 1
            self._progress(self._ready, self._count)
            return kernel

"""Kernels compiled side by side: none runs, all are ready after the block, other threads launch as ever."""

import threading
from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from triton.runtime import _async_compile
from triton.runtime.jit import JITFunction

from dsocr_core.kernels.compile import compiled_together

CUDA = torch.device("cuda")


class Kernel(JITFunction):  # type: ignore[type-arg, misc]
    """A kernel whose launches are written down; compiling it takes until another is compiled too."""

    def __init__(self, together: threading.Barrier) -> None:
        self.launches: list[dict[str, Any]] = []
        self.loaded, self._together = False, together

    def run(self, *given: Any, **options: Any) -> None:
        self.launches.append({"given": given, **options})
        mode = _async_compile.active_mode.get()
        if mode is not None:
            mode.submit(id(self), self._compile, lambda _: None)

    def _compile(self) -> Any:
        self._together.wait(60)
        return self._Compiled(self)

    class _Compiled:
        def __init__(self, kernel: "Kernel") -> None:
            self._kernel = kernel

        @property
        def run(self) -> None:
            self._kernel.loaded = True


def test_kernels_are_compiled_at_once_and_only_those_of_the_block_are_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    together, ready = threading.Barrier(2), list[tuple[int, int]]()
    pair = Kernel(together), Kernel(together)
    with compiled_together(CUDA, lambda *each: ready.append(each)):
        for kernel in pair:
            kernel[(3,)](7, num_warps=4)
        other = threading.Thread(target=lambda: pair[0][(1,)](1))
        other.start()
        other.join()
    assert all(kernel.loaded for kernel in pair) and len(ready) == 2
    assert pair[0].launches[0] == {"given": (7,), "num_warps": 4, "grid": (3,), "warmup": True}
    with pytest.raises(ValueError, match="shape"), compiled_together(CUDA):
        raise ValueError("shape")
    pair[0][(1,)](1)
    with compiled_together(torch.device("cpu")):
        pair[0][(1,)](1)
    assert [launch["warmup"] for launch in pair[0].launches[1:]] == [False] * 3

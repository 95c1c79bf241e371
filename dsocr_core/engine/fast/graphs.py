"""CUDA graphs: what is captured, and the passes that are captured by their shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

Side = TypeVar("Side")
Main = TypeVar("Main")
Shape = TypeVar("Shape", bound=Hashable)
Pass = TypeVar("Pass")


class SideStream:
    """A second CUDA stream: overlaps two pieces of work and joins them."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def overlap(self, side: Callable[[], Side], main: Callable[[], Main]) -> tuple[Side, Main]:
        """Queue both. Later work waits for both. Results of `side` last until the next call."""
        if self._stream is None:
            return side(), main()
        here = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            of_side = side()
        of_main = main()
        here.wait_stream(self._stream)
        return of_side, of_main


@dataclass(frozen=True)
class Recording:
    """A graph, and what it ran, which holds the buffers that a replay writes to."""

    run: Callable[[], None]
    graph: torch.cuda.CUDAGraph

    def replay(self) -> None:
        """Queue what `run` launched."""
        self.graph.replay()


def record(run: Callable[[], None], device: torch.device) -> Recording:
    """Record what `run` launches. Runs it once before, to compile its kernels."""
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    return Recording(run, _captured(run, side, None))


def _captured(run: Callable[[], None], stream: torch.cuda.Stream, pool: Any) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile: their work does not belong to this graph.
    with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        run()
    return graph


def recorder_for(device: torch.device) -> Recorder | None:
    """A recorder, or None without CUDA: nothing can be captured."""
    return Recorder(device) if device.type == "cuda" else None


class Recorder:
    """Captures graphs of which one runs at a time: one side stream, one pool of memory for all."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = torch.cuda.graph_pool_handle()

    def recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        """Record what `run` launches, which has run before with such shapes; a replay writes what it set.

        The caller holds its buffers.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return _captured(run, self._stream, self._pool).replay


class CapturedPasses(Generic[Shape, Pass]):
    """Captured passes of the shapes that came last, `most` at most: a shape's is made when it comes again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: OrderedDict[Shape, Pass | None] = OrderedDict()

    def get(self, shape: Shape, make: Callable[[], Pass]) -> Pass | None:
        """Give the shape's pass, made now at the second time; None at the first."""
        if shape not in self._seen and len(self._seen) == self._most:
            self._seen.popitem(last=False)  # gives the memory back first
        found = (self._seen[shape] or make()) if shape in self._seen else None
        self._seen[shape] = found
        self._seen.move_to_end(shape)
        return found

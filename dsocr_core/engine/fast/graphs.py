"""CUDA graphs, and captured passes by the shape of their input."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch

Side = TypeVar("Side")
Main = TypeVar("Main")
Shape = TypeVar("Shape", bound=Hashable)
Pass = TypeVar("Pass")
Capture = Callable[[], None]
"""A capture to be made while the device has other work."""


ROOM_BYTES = 6 * 2**30
"""Free memory of a device from which on a capture gives back no unused memory."""


class SideStream:
    """A second CUDA stream, to run two pieces of work at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def overlap(self, side: Callable[[], Side], main: Callable[[], Main]) -> tuple[Side, Main]:
        """Queue both at once. Later work waits for both. Outputs of `side` last until the next call."""
        if self._stream is None:
            return side(), main()
        here = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(here)
        try:
            with torch.cuda.stream(self._stream):
                of_side = side()
            return of_side, main()
        finally:  # a capture that finds no memory cannot end with work that nobody waits for
            here.wait_stream(self._stream)


@dataclass(frozen=True)
class Recording:
    """A graph with the function it captured, which holds the buffers that a replay writes."""

    run: Callable[[], None]
    graph: torch.cuda.CUDAGraph

    def replay(self) -> None:
        """Queue the captured launches."""
        self.graph.replay()


def record(run: Callable[[], None], device: torch.device) -> Recording:
    """Capture what `run` launches. It is run once before, to compile its kernels."""
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    return Recording(run, _captured(run, side, None))


def _captured(run: Callable[[], None], stream: torch.cuda.Stream, pool: Any) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    # `torch.cuda.graph` would wait for the device and give back all unused memory each time: what runs next
    # would ask for it anew. Only while nothing is captured can the allocator give it back by itself.
    if torch.cuda.mem_get_info(stream.device)[0] < ROOM_BYTES:
        torch.cuda.empty_cache()
    with torch.cuda.stream(stream):
        # Other threads may use the device meanwhile; their work is not captured.
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            run()
        finally:
            graph.capture_end()
    return graph


def recorder_for(device: torch.device) -> Recorder | None:
    """A recorder; None without CUDA, where nothing can be captured."""
    return Recorder(device) if device.type == "cuda" else None


class Recorder:
    """Maker of graphs that run one at a time and share a side stream and a memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = torch.cuda.graph_pool_handle()

    def recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        """Capture what `run` launches, which must have run with such shapes. Returns the replay.

        The caller holds its buffers.
        """
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return _captured(run, self._stream, self._pool).replay


class CapturedPasses(Generic[Shape, Pass]):
    """Captured passes of the last `most` shapes. A shape is captured by `pending`, or when it comes again."""

    pending: tuple[Capture, ...] = ()
    """That of the shape that came last, where there is none."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: OrderedDict[Shape, Pass | None] = OrderedDict()

    def get(self, shape: Shape, make: Callable[[], Pass]) -> Pass | None:
        """The shape's captured pass, made now at its second time; None at the first, or out of memory."""
        if shape not in self._seen and len(self._seen) == self._most:
            self._seen.popitem(last=False)  # frees its memory first
        if shape in self._seen and self._seen[shape] is None:
            self._capture(shape, make)
        found = self._seen.setdefault(shape, None)
        self._seen.move_to_end(shape)
        self.pending = () if found is not None else (partial(self._capture, shape, make),)
        return found

    def _capture(self, shape: Shape, make: Callable[[], Pass]) -> None:
        self.pending = ()
        with suppress(torch.cuda.OutOfMemoryError):  # then the page is read without
            self._seen[shape] = make()

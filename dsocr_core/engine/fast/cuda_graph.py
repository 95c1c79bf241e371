"""Decode steps captured once as CUDA graphs and replayed group after group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from dsocr_core.engine.fast.step import DecodeStep

Other = TypeVar("Other")
Own = TypeVar("Own")


class StepGraph:
    """`replay()` runs `step`, `group` times in one graph where that fits; without CUDA by plain launches.

    Within a graph a step's first kernel may start beside the last of the step before; between two graphs
    the device pauses. The step must be idle when this is made: capturing runs it, which does not change a
    finished sequence.
    """

    def __init__(self, step: DecodeStep, group: int = 1) -> None:
        self.step, self._group = step, group
        self._graphs: dict[int, Recording] = {}
        if step.device.type == "cuda":
            for count in {1, group}:
                self._graphs[count] = record(partial(repeated, count, step.run), step.device)

    def replay(self, count: int = 1) -> None:
        """Append the next `count` tokens. Only queues work."""
        if not self._graphs:
            repeated(count, self.step.run)
            return
        if count >= self._group:
            repeated(count // self._group, self._graphs[self._group].replay)
            count %= self._group
        repeated(count, self._graphs[1].replay)


def repeated(count: int, run: Callable[[], None]) -> None:
    """Call it so many times."""
    for _ in range(count):
        run()


class Beside:
    """A second stream for what need not wait for work that is queued meanwhile: the device runs both."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def run(self, other: Callable[[], Other], own: Callable[[], Own]) -> tuple[Other, Own]:
        """Queue both from here on, `other` on the second stream; what comes after waits for both.

        What `other` makes is used only before the next call: then its memory may be taken again.
        """
        if self._stream is None:
            return other(), own()
        here = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            others = other()
        owns = own()
        here.wait_stream(self._stream)
        return others, owns


@dataclass(frozen=True)
class Recording:
    """A graph, and what it ran: the graph writes to those buffers, so they last as long as it does.

    PyTorch gives a buffer that nobody holds to the next tensor, which a replay would then overwrite.
    """

    run: Callable[[], None]
    graph: torch.cuda.CUDAGraph

    def replay(self) -> None:
        """Queue what `run` launched."""
        self.graph.replay()


def record(
    run: Callable[[], None], device: torch.device, stream: torch.cuda.Stream | None = None, pool: Any = None
) -> Recording:
    """Record what `run` launches, as a graph. Runs it once before, so that its kernels are compiled.

    `stream` is where it is captured, a new one by default; each has a workspace of the matrix library.
    Graphs of one `pool` share the memory between their nodes.
    """
    side = stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile: their work does not belong to this graph.
    with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
        run()
    return Recording(run, graph)


def recorder_for(device: torch.device) -> Recorder | None:
    """None where there is no CUDA, and so nothing to capture."""
    return Recorder(device) if device.type == "cuda" else None


class Recorder:
    """Captures graphs of which one runs at a time: one side stream, one pool of memory for all."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = torch.cuda.graph_pool_handle()

    def recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        """Record what `run` launches. Attributes that it sets belong to the graph: a replay writes them
        again.

        Who asks keeps the buffers that `run` was given: it holds the answer, and would be held by it.
        """
        replay: Callable[[], None] = record(run, self._device, self._stream, self._pool).graph.replay
        return replay

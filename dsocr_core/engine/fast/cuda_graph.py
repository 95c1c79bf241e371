"""A decode step recorded once as a CUDA graph and replayed token after token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dsocr_core.engine.fast.step import DecodeStep


class StepGraph:
    """`replay()` runs `step` as one graph; where there is no CUDA, by plain launches.

    The step must be idle when this is made: recording runs it, which a finished sequence survives.
    """

    def __init__(self, step: DecodeStep) -> None:
        self.step = step
        self._graph = record(step.run, step.device) if step.device.type == "cuda" else None

    def replay(self) -> None:
        """Append the next token. Only queues work."""
        if self._graph is None:
            self.step.run()
        else:
            self._graph.replay()


def record(
    run: Callable[[], None], device: torch.device, stream: torch.cuda.Stream | None = None, pool: Any = None
) -> torch.cuda.CUDAGraph:
    """What `run` launches, as a graph. Runs it once before, so that its kernels are compiled.

    `stream` is where it is recorded, a new one by default; each takes a workspace of the matrix library's.
    Graphs of one `pool` share the memory that lies between their nodes.
    """
    side = stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile: what they do is none of this graph's.
    with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
        run()
    return graph


def recorder_for(device: torch.device) -> Recorder | None:
    """None where there is no CUDA, and so nothing to record."""
    return Recorder(device) if device.type == "cuda" else None


class Recorder:
    """Records graphs of which one runs at a time: one side stream, one pool of memory for all."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Any = torch.cuda.graph_pool_handle()

    def recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        """What `run` launches. What it leaves in attributes is the graph's: a replay makes it anew."""
        replay: Callable[[], None] = record(run, self._device, self._stream, self._pool).replay
        return replay

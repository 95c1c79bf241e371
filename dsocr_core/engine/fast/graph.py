"""A decode step recorded once as a CUDA graph and replayed token after token."""

from __future__ import annotations

import torch

from dsocr_core.engine.fast.step import DecodeStep


class StepGraph:
    """`replay()` runs `step` as one graph; where there is no CUDA, by plain launches.

    The step must be idle when this is made: recording runs it, which a finished sequence survives.
    """

    def __init__(self, step: DecodeStep) -> None:
        self.step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        if step.device.type == "cuda":
            self._graph = _record(step)

    def replay(self) -> None:
        """Append the next token. Only queues work."""
        if self._graph is None:
            self.step.run()
        else:
            self._graph.replay()


def _record(step: DecodeStep) -> torch.cuda.CUDAGraph:
    # Kernels are compiled by the first run, which must not be recorded.
    side = torch.cuda.Stream(step.device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(step.device))
    with torch.cuda.stream(side):
        step.run()
    torch.cuda.current_stream(step.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step.run()
    return graph

"""A step's forward and backward pass, recorded on the device and replayed.

Launching a step's two thousand kernels takes the host longer than running them takes an H200. Every kind of
step (mode, length) is launched when it first comes up, recorded the second time, and replayed then.
"""

import gc
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import torch
from torch import Tensor

from data.mini.training.data import Batch

Kind = TypeVar("Kind", bound=Hashable)
RECORD_AT = 2  # times that a kind has come up; what comes up once is not worth it


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    result: Tensor


class RecordedSteps(Generic[Kind]):
    """Calls `run(batch, kind)`, or replays what it did for a batch of that kind and these shapes.

    `run` leaves gradients where they are and returns a tensor for the report; a replay overwrites that of the
    replay before. What it reads beside the batch must stay at its place in memory. Where recording fails, or
    without a GPU, every step is launched.
    """

    def __init__(self, run: Callable[[Batch, Kind], Tensor], device: torch.device, enabled: bool) -> None:
        self._run = run
        self._enabled = enabled and device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._enabled else None
        # One step runs at a time, so all recordings may use the same memory between their ends.
        self._memory = torch.cuda.graph_pool_handle() if self._enabled else None
        self._seen: Counter[Hashable] = Counter()
        self._recordings: dict[Hashable, _Recording] = {}
        self._inputs: dict[Hashable, Tensor] = {}

    def __call__(self, batch: Batch, kind: Kind) -> Tensor:
        shapes = tuple((name, tuple(tensor.shape)) for name, tensor in _tensors(batch).items())
        key = (kind, shapes)
        self._seen[key] += 1
        if not self._enabled or self._seen[key] < RECORD_AT:
            return self._run(batch, kind)
        held = self._held(batch)
        if key not in self._recordings:
            try:
                self._recordings[key] = self._record(held, kind)
            except RuntimeError as error:
                self._enabled = False
                print(f"steps are launched, not replayed: {str(error).splitlines()[0]}", flush=True)
                return self._run(batch, kind)
        recording = self._recordings[key]
        recording.graph.replay()
        return recording.result

    @property
    def recorded(self) -> int:
        """Count the kinds of step that are replayed by now."""
        return len(self._recordings)

    def _held(self, batch: Batch) -> Batch:
        """The batch copied to where recordings look for one of its shapes."""
        held = {}
        for name, tensor in _tensors(batch).items():
            place = (name, tuple(tensor.shape))
            if place not in self._inputs:
                self._inputs[place] = torch.empty_like(tensor)
            held[name] = self._inputs[place].copy_(tensor)
        return Batch(**held)

    def _record(self, batch: Batch, kind: Kind) -> _Recording:
        # Not torch.cuda.graph: it collects garbage and empties the allocator's cache for every recording.
        assert self._stream is not None
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        self._stream.wait_stream(torch.cuda.current_stream())
        gc.disable()  # what is freed while recording would break it
        try:
            with torch.cuda.stream(self._stream):
                # The feed's threads pin memory meanwhile: only this thread's calls are looked at.
                graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
                try:
                    result = self._run(batch, kind)
                finally:
                    graph.capture_end()
        finally:
            gc.enable()
        torch.cuda.current_stream().wait_stream(self._stream)
        return _Recording(graph, result)


def _tensors(batch: Batch) -> dict[str, Tensor]:
    values = {each.name: getattr(batch, each.name) for each in fields(batch)}
    return {name: value for name, value in values.items() if value is not None}

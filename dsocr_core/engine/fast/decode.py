"""Greedy decoding in groups of steps. The device writes tokens; the host reads them one group later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from dsocr_core.engine.fast.graphs import Capture, Recording, record
from dsocr_core.engine.fast.step import DecodeStep, StepLaunches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import Sequence, best_allowed
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import NgramPolicy

About = TypeVar("About")

GROUP = 16
"""Tokens between two reads by the host."""

STEPS_A_GRAPH = 8
"""Steps of one CUDA graph, two graphs a group. 4 and 16 were slower (docs/performance.md)."""

STEPS_BESIDE = 192
"""Steps that are queued at once while the host captures passes: 74 ms of one H200 at the published sizes."""

POSITIONS_STEP = 1024
"""Cache sizes are multiples of this, so that pages seldom need a new cache and graph."""


class Timestamp:
    """A point in time: a CUDA event, or the clock's time on a CPU."""

    def __init__(self, device: torch.device, timed: bool) -> None:
        self._event: torch.cuda.Event | None = None
        self._seconds = 0.0
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]
            self._event.record()
        elif timed:
            self._seconds = time.perf_counter()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def milliseconds_to(self, other: Timestamp) -> float:
        """Milliseconds between two timestamps, both of which must have passed and be timed."""
        if self._event is not None and other._event is not None:
            return float(self._event.elapsed_time(other._event))
        return (other._seconds - self._seconds) * 1e3


class Copies:
    """Copies of tensors to the host, complete when the work queued before has ended."""

    def __init__(self, *tensors: Tensor, timed: bool = False) -> None:
        self._tensors = [_to_host(tensor) for tensor in tensors]
        self.arrived = Timestamp(tensors[0].device, timed)

    def read(self) -> list[list[Any]]:
        """Wait for the copies. Returns each as a list."""
        self.arrived.wait()
        return [tensor.tolist() for tensor in self._tensors]


def _to_host(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        return tensor.clone()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


@dataclass(frozen=True)
class QueuedGroup(Generic[About]):
    """A queued group of steps with the caller's `about`, and copies of its outputs."""

    about: About
    copies: Copies
    began: Timestamp | None
    """When the group began; None where groups are not timed."""

    def milliseconds(self) -> float | None:
        """Time of the group on the device with its copies; None where not timed. Read the copies before."""
        return None if self.began is None else self.began.milliseconds_to(self.copies.arrived)


class GroupPipeline(Generic[About]):
    """Queue of groups of steps. The host reads a group while the next one runs, so the device never waits."""

    def __init__(self, device: torch.device, timed: bool = False) -> None:
        self._device, self._timed = device, timed
        self._running: QueuedGroup[About] | None = None

    @property
    def running(self) -> bool:
        """True while a queued group has not been returned."""
        return self._running is not None

    def queue(self, about: About, run: Callable[[], None], *outputs: Tensor) -> QueuedGroup[About] | None:
        """Queue a group and copies of its outputs. Returns the group before, to be read meanwhile."""
        began = Timestamp(self._device, timed=True) if self._timed else None
        run()
        return self._next(QueuedGroup(about, Copies(*outputs, timed=self._timed), began))

    def last(self) -> QueuedGroup[About] | None:
        """Return the group that was queued last."""
        return self._next(None)

    def _next(self, following: QueuedGroup[About] | None) -> QueuedGroup[About] | None:
        before, self._running = self._running, following
        return before


class FastDecoder:
    """Decoder of one page at a time. Its cache and graph are reused. Hold the device's lock."""

    def __init__(
        self,
        model: OcrModel,
        eos_token_id: int,
        rotary_dtype: torch.dtype,
        launches: StepLaunches | None = None,
        group: int = GROUP,
    ) -> None:
        if group < 1:
            raise ValueError(f"group of {group} tokens")
        self._model, self._eos, self._rotary_dtype = model, eos_token_id, rotary_dtype
        self._launches, self._group = launches, group
        self._weights = pack(model.decoder)
        self._graph: StepGraph | None = None

    def start(
        self,
        prompt_ids: tuple[int, ...],
        limit: int,
        ngram: NgramPolicy | int,
        core: AttentionCore,
        room: tuple[int, int] = (0, 0),
    ) -> Sequence:
        """Empty sequence for the prefill of a prompt. It is valid until the next `start`.

        `room` is the longest prompt that may come, and its new tokens. A new cache has room for it.
        """
        step = self._graph_for((len(prompt_ids), limit), room).step
        step.cache.length = 0
        return Sequence(step.cache, step.rotary, core, NgramRule(ngram, prompt_ids))

    def tokens(
        self, sequence: Sequence, prompt_ids: tuple[int, ...], logits: Tensor, limit: int, *beside: Capture
    ) -> Iterator[int]:
        """Yield the new tokens after the prefill's `logits` (V,). Raises ValueError for an older sequence.

        A long page does `beside` while the device decodes, so that it costs no time.
        """
        graph = self._graph
        if graph is None or sequence.cache is not graph.step.cache:
            raise ValueError("the sequence is not the one that was started last")
        # No wait: the device goes on from the prefill to the first steps.
        first = best_allowed(logits, sequence.rule.banned())
        graph.step.begin_with(prompt_ids, first, limit, sequence.rule.policy)

        start, queued, tokens = len(prompt_ids), 1, graph.step.tokens
        pipeline = GroupPipeline[None](graph.step.device)
        pipeline.queue(None, lambda: None, tokens[start : start + 1])
        while True:
            if queued < limit:
                beside = beside if limit - queued >= STEPS_BESIDE else ()
                count = STEPS_BESIDE if beside else min(self._group, limit - queued)
                new = tokens[start + queued : start + queued + count]
                group = pipeline.queue(None, partial(graph.replay, count), new)
                queued += count
                for work in beside:
                    work()
                beside = ()
            else:
                group = pipeline.last()
            if group is None:
                return
            for token in group.copies.read()[0]:
                yield token
                if token == self._eos:
                    return

    def _graph_for(self, page: tuple[int, int], room: tuple[int, int]) -> StepGraph:
        """The graph, made again with that room when the cache is too small."""
        if self._graph is None or not self._graph.step.fits(*self._sizes(page)):
            self._graph = None  # frees its memory first
            self._graph = StepGraph(self.step_for(page, room), min(STEPS_A_GRAPH, self._group))
        return self._graph

    def _sizes(self, page: tuple[int, int]) -> tuple[int, int]:
        """Positions of a page (prompt, new tokens), and those that are cached."""
        return sum(page), KvCache.positions(self._model.config.decoder, *page)

    def step_for(self, page: tuple[int, int], room: tuple[int, int] = (0, 0)) -> DecodeStep:
        """New step whose cache has room for either of two pages (prompt, new tokens)."""
        config, sizes = self._model.config.decoder, map(max, self._sizes(page), self._sizes(room))
        positions, cached = (-(-size // POSITIONS_STEP) * POSITIONS_STEP for size in sizes)
        return DecodeStep(
            self._weights, config, positions, self._rotary_dtype, self._eos, self._launches, cached
        )


class StepGraph:
    """CUDA graph of a step, and one of `group` steps where that fits. The step must be idle at first."""

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
    """Call `run` `count` times."""
    for _ in range(count):
        run()

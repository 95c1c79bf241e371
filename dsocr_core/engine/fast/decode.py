"""Greedy decoding in groups: the device writes tokens, the host reads them a group behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from dsocr_core.engine.fast.graphs import Recording, record
from dsocr_core.engine.fast.step import DecodeStep, StepLaunches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import Sequence, best_allowed
from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.ngram_rule import NgramRule
from dsocr_core.reading.records import NgramPolicy

About = TypeVar("About")

GROUP = 16
"""Tokens between two reads of what the device wrote."""

STEPS_A_GRAPH = 8
"""Two a group. 4 and 16 were measured slower (docs/performance.md)."""

POSITIONS_STEP = 1024
"""Step of cache sizes, so that few pages need a larger cache and graph than the last one."""


class Timestamp:
    """A CUDA event, or the clock where there is no device."""

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
        """Both must have passed and been timed."""
        if self._event is not None and other._event is not None:
            return float(self._event.elapsed_time(other._event))
        return (other._seconds - self._seconds) * 1e3


class Copies:
    """Tensors on their way to the host, there once the work queued before has ended."""

    def __init__(self, *tensors: Tensor, timed: bool = False) -> None:
        self._tensors = [_to_host(tensor) for tensor in tensors]
        self.arrived = Timestamp(tensors[0].device, timed)

    def read(self) -> list[list[Any]]:
        """Wait for them; each as a list."""
        self.arrived.wait()
        return [tensor.tolist() for tensor in self._tensors]


def _to_host(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        return tensor.clone()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


@dataclass(frozen=True)
class Queued(Generic[About]):
    """A group of steps: what it is `about`, and copies of what it wrote."""

    about: About
    copies: Copies
    began: Timestamp | None
    """None: untimed."""

    def milliseconds(self) -> float | None:
        """Time of the steps on the device, with copies; None: not timed. They must have been read."""
        return None if self.began is None else self.began.milliseconds_to(self.copies.arrived)


class GroupPipeline(Generic[About]):
    """Groups of steps, read one behind: the device waits for nothing, the host for an event a group."""

    def __init__(self, device: torch.device, timed: bool = False) -> None:
        self._device, self._timed = device, timed
        self._running: Queued[About] | None = None

    @property
    def running(self) -> bool:
        """Tell whether a group was queued and not yet given out."""
        return self._running is not None

    def queue(self, about: About, run: Callable[[], None], *outputs: Tensor) -> Queued[About] | None:
        """Queue a group and copies of its outputs; give out the group before, to read while this one runs."""
        began = Timestamp(self._device, timed=True) if self._timed else None
        run()
        return self._next(Queued(about, Copies(*outputs, timed=self._timed), began))

    def last(self) -> Queued[About] | None:
        """Give out the group that was queued last."""
        return self._next(None)

    def _next(self, following: Queued[About] | None) -> Queued[About] | None:
        before, self._running = self._running, following
        return before


class FastDecoder:
    """Decodes one page at a time; reuses its cache and graph for the next page. Hold the device's lock."""

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
        self, prompt_ids: tuple[int, ...], limit: int, ngram: NgramPolicy | int, core: AttentionCore
    ) -> Sequence:
        """An empty sequence for the prefill of that prompt. It lasts until the next `start`."""
        step = self._graph_for(len(prompt_ids), limit).step
        step.cache.length = 0
        return Sequence(step.cache, step.rotary, core, NgramRule(ngram, prompt_ids))

    def tokens(
        self, sequence: Sequence, prompt_ids: tuple[int, ...], logits: Tensor, limit: int
    ) -> Iterator[int]:
        """Yield the new tokens after the prefill's `logits` (V,). Raises ValueError for an older sequence."""
        graph = self._graph
        if graph is None or sequence.cache is not graph.step.cache:
            raise ValueError("the sequence is not the one that was started last")
        # Nothing is waited for: the device goes on from the prefill to the first steps.
        first = best_allowed(logits, sequence.rule.banned())
        graph.step.begin_with(prompt_ids, first, limit, sequence.rule.policy)

        start, queued, tokens = len(prompt_ids), 1, graph.step.tokens
        pipeline = GroupPipeline[None](graph.step.device)
        pipeline.queue(None, lambda: None, tokens[start : start + 1])
        while True:
            if queued < limit:
                count = min(self._group, limit - queued)
                new = tokens[start + queued : start + queued + count]
                group = pipeline.queue(None, partial(graph.replay, count), new)
                queued += count
            else:
                group = pipeline.last()
            if group is None:
                return
            for token in group.copies.read()[0]:
                yield token
                if token == self._eos:
                    return

    def _graph_for(self, prompt: int, limit: int) -> StepGraph:
        """The present graph, or a new one when its cache is too small."""
        held = KvCache.positions(self._model.config.decoder, prompt, limit)
        if self._graph is None or not self._graph.step.holds(prompt + limit, held):
            self._graph = None  # gives the memory back first
            self._graph = StepGraph(self.step_for(prompt, limit), min(STEPS_A_GRAPH, self._group))
        return self._graph

    def step_for(self, prompt: int, limit: int) -> DecodeStep:
        """A new step whose cache has room for such a page."""
        config = self._model.config.decoder
        sizes = prompt + limit, KvCache.positions(config, prompt, limit)
        positions, held = (-(-size // POSITIONS_STEP) * POSITIONS_STEP for size in sizes)
        return DecodeStep(
            self._weights, config, positions, self._rotary_dtype, self._eos, self._launches, held
        )


class StepGraph:
    """`replay()` runs a step, `group` times in one graph where that fits. It must be idle at first."""

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

"""Greedy decoding in groups: the device writes tokens, the host reads them a group behind.

The host queues a group of replays and a copy of their tokens, then reads the group before while this one
runs. So the device never waits for the host, and the host for one event a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.engine.fast.cuda_graph import StepGraph
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.step_launches import StepLaunches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import Sequence
from dsocr_core.engine.sampling import NgramRule, best_allowed
from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import NgramPolicy

GROUP = 16
"""Tokens between two reads of what the device wrote."""

STEPS_A_GRAPH = 8
"""Two a group. 4 and 16 were measured slower (docs/performance.md)."""

POSITIONS_STEP = 1024
"""Cache sizes are multiples of this, so that few pages need a cache and graph larger than the last's."""


class FastDecoder:
    """Decodes one page at a time with a model's weights; reuses its cache and graph for the next page.

    Not safe for concurrent use: hold the device's lock from `start` to the last of `tokens`.
    """

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
        """An empty sequence for the prefill of that prompt; it lasts until the next `start`."""
        step = self._graph_for(len(prompt_ids), limit).step
        step.cache.length = 0
        return Sequence(step.cache, step.rotary, core, NgramRule(ngram, prompt_ids))

    def tokens(
        self, sequence: Sequence, prompt_ids: tuple[int, ...], logits: Tensor, limit: int
    ) -> Iterator[int]:
        """Yield the new tokens after the prefill's `logits` (V,), the end token included.

        Raises ValueError when `sequence` is not the one last started.
        """
        graph = self._graph
        if graph is None or sequence.cache is not graph.step.cache:
            raise ValueError("the sequence is not the one that was started last")
        # Nothing is waited for: the device goes on from the prefill to the first steps.
        first = best_allowed(logits, sequence.rule.banned())
        graph.step.begin_with(prompt_ids, first, limit, sequence.rule.policy)

        running: _Group | None = _copied(graph, len(prompt_ids), 1)
        queued = 1
        while running is not None:
            following = None
            if queued < limit:
                count = min(self._group, limit - queued)
                following = _queue(graph, len(prompt_ids) + queued, count)
                queued += count
            for token in running.wait():
                yield token
                if token == self._eos:
                    return
            running = following

    def _graph_for(self, prompt: int, limit: int) -> StepGraph:
        """The present graph, or a new one when its cache is too small."""
        config = self._model.config.decoder
        sizes = prompt + limit, KvCache.positions(config, prompt, limit)
        if self._graph is None or not self._graph.step.holds(*sizes):
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


@dataclass
class _Group:
    """Tokens being copied to the host."""

    tokens: Tensor
    arrived: torch.cuda.Event | None

    def wait(self) -> list[int]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return [int(token) for token in self.tokens.tolist()]


def _queue(graph: StepGraph, first: int, count: int) -> _Group:
    """Replay `count` steps and copy the tokens they put at positions `first` on."""
    graph.replay(count)
    return _copied(graph, first, count)


def _copied(graph: StepGraph, first: int, count: int) -> _Group:
    """Copy the tokens at positions `first` on, once they are there."""
    written = graph.step.tokens[first : first + count]
    if graph.step.device.type != "cuda":
        return _Group(written.clone(), None)
    host = torch.empty(count, dtype=written.dtype, pin_memory=True)
    host.copy_(written, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()
    return _Group(host, arrived)

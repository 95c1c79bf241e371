"""Many sequences decoded together, with continuous refill: a finished one frees its slot.

The host queues a group of steps and reads the states a group behind, so the device never waits for it. A
sequence that ended in a group frees its slot when that group is read, which is while the next group runs; its
tokens are copied out after that. So a slot is idle for one group and the rest of another.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.cuda_graph import record
from dsocr_core.kernels.state import DONE, POSITION
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.reading.records import NgramPolicy

GROUP = 8
"""Steps between two reads of what the device wrote."""

MOST_TIMES = 4096
"""Groups whose times are stored."""


@dataclass(frozen=True)
class Decoded:
    """One sequence, ended. `key` is the caller's name for it."""

    key: object
    tokens: tuple[int, ...]
    milliseconds: float | None
    """From its first token to its last, other sequences' share of the steps included; None untimed."""


@dataclass(frozen=True)
class GroupTime:
    """Work and time of a group of steps on the device.

    `tokens` counts those of sequences that run to their limit; one that meets its end token ends earlier.
    `positions` are those that its sequences' caches held together, in the middle of the group.
    """

    steps: int
    tokens: int
    positions: int
    milliseconds: float


class _Moment:
    """A point in the device's queue, or a time of the clock where there is no device."""

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

    def milliseconds_to(self, other: _Moment) -> float:
        """Both must have passed and been timed."""
        if self._event is not None and other._event is not None:
            return float(self._event.elapsed_time(other._event))
        return (other._seconds - self._seconds) * 1e3


@dataclass
class _Running:
    """A sequence in a slot."""

    key: object
    slot: int
    prompt_tokens: int
    limit: int
    began: _Moment
    queued: int = 0
    """Steps that were queued for it."""


@dataclass(frozen=True)
class _Group:
    """Queued steps: which sequences they feed, and where their states will be."""

    running: tuple[tuple[_Running, int], ...]
    """Each with the steps that were queued for it before this group."""
    steps: int
    tokens: int
    positions: int
    states: Tensor
    began: _Moment
    ended: _Moment


@dataclass(frozen=True)
class _Leaving:
    """Tokens being copied to the host."""

    key: object
    tokens: Tensor
    milliseconds: float | None
    arrived: _Moment


class BatchDecoder:
    """Slots of one `BatchStep` and the sequences in them.

    Not safe for concurrent use. `timed` False makes no timing events and reads no clock.
    """

    def __init__(self, step: BatchStep, group: int = GROUP, timed: bool = True) -> None:
        if group < 1:
            raise ValueError(f"group of {group} steps")
        self.step, self._size, self._timed = step, group, timed
        self.replay: Callable[[], object] = step.run
        """A step of all slots. Only queues work."""
        if step.device.type == "cuda":
            _warm_first(step)
            self.replay = record(step.run, step.device).replay
        self._free = list(range(step.slots))
        self._running: dict[int, _Running] = {}
        self._under_way: _Group | None = None
        self._leaving: list[_Leaving] = []
        self.times: deque[GroupTime] = deque(maxlen=MOST_TIMES)
        """Times of the newest groups, when timed."""

    @property
    def free(self) -> int:
        """Slots that a page may take."""
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Tell whether `advance` has anything to do."""
        return bool(self._running or self._leaving or self._under_way)

    def reset(self) -> None:
        """Drop all sequences, after a run that was aborted."""
        self.step.states[:, DONE] = 1
        self._free = list(range(self.step.slots))
        self._running, self._leaving, self._under_way = {}, [], None

    def take(self) -> tuple[int, KvCache]:
        """A free slot and its cache for a prefill. Raises IndexError when there is none."""
        slot = self._free.pop(0)
        return slot, self.step.cache_of(slot)

    def give_back(self, slot: int) -> None:
        """The page that took the slot could not be prefilled."""
        self.step.states[slot, DONE] = 1
        self._free.append(slot)

    def begin(
        self,
        slot: int,
        key: object,
        prompt_ids: tuple[int, ...],
        limit: int,
        ngram: NgramPolicy | int,
        logits: Tensor,
    ) -> None:
        """Decode from the prefill's `logits` (V,) in a slot that was taken. Raises ValueError when the page
        does not fit it."""
        self.step.begin(slot, prompt_ids, limit, ngram)
        self.step.first(slot, logits)
        began = _Moment(self.step.device, self._timed)
        self._running[slot] = _Running(key, slot, len(prompt_ids), limit, began)

    def advance(self) -> list[Decoded]:
        """Queue a group for the live slots, then read the group before: the sequences that ended."""
        following = self._queue()
        arriving, self._leaving = self._leaving, []
        if self._under_way is not None:
            self._read(self._under_way)
        self._under_way = following
        return [_arrive(leaving) for leaving in arriving]

    def _queue(self) -> _Group | None:
        # No sequence takes more steps than its limit leaves, whatever the device writes.
        wanted = max((r.limit - 1 - r.queued for r in self._running.values()), default=-1)
        if wanted < 0:
            return None
        steps = min(self._size, wanted)
        device = self.step.device
        running = tuple((running, running.queued) for running in self._running.values())
        began = _Moment(device, self._timed)
        for _ in range(steps):
            self.replay()
        states = _to_host(self.step.states)
        tokens = positions = 0
        for one, before in running:
            one.queued += steps
            taken = max(0, min(steps, one.limit - 1 - before))
            tokens += taken
            config, middle = self.step.config, before + taken // 2
            positions += KvCache.positions(config, one.prompt_tokens, middle) if taken else 0
        return _Group(running, steps, tokens, positions, states, began, _Moment(device, self._timed))

    def _read(self, group: _Group) -> None:
        group.ended.wait()
        if self._timed and group.steps:
            whole = group.began.milliseconds_to(group.ended)
            self.times.append(GroupTime(group.steps, group.tokens, group.positions, whole))
        states = group.states.tolist()
        for running, before in group.running:
            state = states[running.slot]
            if not state[DONE] or self._running.get(running.slot) is not running:
                continue
            # The last token is never fed back: it lies one behind the position.
            count = state[POSITION] + 2 - running.prompt_tokens
            del self._running[running.slot]
            self._free.append(running.slot)
            written = self.step.tokens[running.slot, running.prompt_tokens :][:count]
            milliseconds = self._time(running, group, count - 1 - before)
            tokens = _to_host(written)
            self._leaving.append(
                _Leaving(running.key, tokens, milliseconds, _Moment(self.step.device, timed=False))
            )

    def _time(self, running: _Running, group: _Group, steps: int) -> float | None:
        """From its first token to `steps` steps into the group."""
        if not self._timed:
            return None
        if steps <= 0:
            return 0.0
        whole = group.began.milliseconds_to(group.ended)
        return running.began.milliseconds_to(group.began) + whole * steps / group.steps


def _arrive(leaving: _Leaving) -> Decoded:
    leaving.arrived.wait()
    return Decoded(leaving.key, tuple(int(token) for token in leaving.tokens.tolist()), leaving.milliseconds)


def _to_host(tensor: Tensor) -> Tensor:
    """A copy in the host's memory, complete when what is queued now is done."""
    if tensor.device.type != "cuda":
        return tensor.clone()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _warm_first(step: BatchStep) -> None:
    """Compile the kernels of a first token, in a slot that ends with it."""
    step.begin(0, (0, 0), 1, 1)
    step.first(0, torch.zeros(step.config.vocab_size, device=step.device))

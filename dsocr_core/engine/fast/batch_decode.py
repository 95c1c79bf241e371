"""Many sequences decoded together, with continuous refill: a finished one frees its slot.

The host queues a group of steps and reads the states a group behind, so the device never waits for it. A
sequence that ended in a group frees its slot when that group is read, which is while the next group runs; its
tokens are copied out after that. So a slot is idle for one group and the rest of another.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dsocr_core.engine.fast.batch_drafts import SlotDraft, rows_of
from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.cuda_graph import record
from dsocr_core.kernels.state import DONE, POSITION
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.reading.records import NgramPolicy

GROUP, PASSES_A_GROUP = 8, 4
"""Steps, and passes over drafts, between two reads of what the device wrote."""

MOST_TIMES = 4096
"""Groups whose times are stored."""


@dataclass(frozen=True)
class Decoded:
    """One sequence, ended. `key` is the caller's name for it."""

    key: object
    tokens: tuple[int, ...]
    milliseconds: float | None
    """From its first token to its last, other sequences' share of the steps included; None untimed."""
    draft: dict[str, str] | None = None
    """Gain of its draft; None without one."""


@dataclass(frozen=True)
class GroupTime:
    """Work and time of a group of steps on the device.

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
    draft: SlotDraft
    tokens: int = 1
    """New tokens that were read or counted so far, the prefill's included."""
    queued: int = 0
    """Steps that were queued for it since: each appends a token at least."""


@dataclass(frozen=True)
class _Group:
    """Queued steps: which sequences they feed, and where their states will be."""

    running: tuple[_Running, ...]
    rows: int
    steps: int
    states: Tensor
    drafts: Tensor | None
    began: _Moment
    ended: _Moment


@dataclass(frozen=True)
class _Leaving:
    """Tokens being copied to the host."""

    key: object
    tokens: Tensor
    milliseconds: float | None
    draft: dict[str, str] | None
    arrived: _Moment


class BatchDecoder:
    """Slots of one `BatchStep` and the sequences in them.

    Not safe for concurrent use. `timed` False makes no timing events and reads no clock.
    """

    def __init__(self, step: BatchStep, group: int = GROUP, timed: bool = True) -> None:
        if group < 1:
            raise ValueError(f"group of {group} steps")
        self.step, self._size, self._timed = step, group, timed
        runs: dict[int, Callable[[], None]] = {rows: partial(step.run, rows) for rows in step.rows}
        if step.device.type == "cuda":
            _warm_first(step)
            runs = {rows: record(run, step.device).replay for rows, run in runs.items()}
        self._runs = runs
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

    def replay(self, rows: int = 1) -> None:
        """Queue a step of all slots with so many rows each."""
        self._runs[rows]()

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
        draft: Sequence[int] = (),
    ) -> None:
        """Decode from the prefill's `logits` (V,) in a slot that was taken. Raises ValueError when the page
        does not fit it."""
        self.step.begin(slot, prompt_ids, limit, ngram, draft)
        self.step.first(slot, logits)
        began = _Moment(self.step.device, self._timed)
        own = self.step.own_text
        follows = SlotDraft(drafted=own or bool(draft), trusted=not own)
        self._running[slot] = _Running(key, slot, len(prompt_ids), limit, began, follows)

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
        running = tuple(self._running.values())
        wanted = max((one.limit - one.tokens - one.queued for one in running), default=-1)
        if wanted < 0:
            return None
        device, drafts = self.step.device, self.step.drafts
        rows = 1 if drafts is None else rows_of([one.draft for one in running])
        steps = min(self._size if rows == 1 else PASSES_A_GROUP, wanted)
        began = _Moment(device, self._timed)
        for _ in range(steps):
            self.replay(rows)
        states = _to_host(self.step.states)
        draft_states = None if drafts is None else _to_host(drafts[1])
        for one in running:
            one.queued += steps
        return _Group(running, rows, steps, states, draft_states, began, _Moment(device, self._timed))

    def _read(self, group: _Group) -> None:
        group.ended.wait()
        tokens = positions = 0
        states = group.states.tolist()
        drafts = None if group.drafts is None else group.drafts.tolist()
        for running in group.running:
            if self._running.get(running.slot) is not running:
                continue
            state, before = states[running.slot], running.tokens
            # The last token is never fed back: it lies one behind the position.
            running.tokens = state[POSITION] + 1 + state[DONE] - running.prompt_tokens
            running.queued -= group.steps
            steps = taken = running.tokens - before
            if drafts is not None:
                passes = running.draft.take(drafts[running.slot], group.rows)
                steps = taken if group.rows == 1 else passes
            tokens += taken
            middle = before - 1 + taken // 2
            held = KvCache.positions(self.step.config, running.prompt_tokens, middle)
            positions += held if taken else 0
            if state[DONE]:
                self._leave(running, self._time(running, group, steps))
        if self._timed and group.steps:
            whole = group.began.milliseconds_to(group.ended)
            self.times.append(GroupTime(group.steps, tokens, positions, whole))

    def _leave(self, running: _Running, milliseconds: float | None) -> None:
        del self._running[running.slot]
        self._free.append(running.slot)
        written = _to_host(self.step.tokens[running.slot, running.prompt_tokens :][: running.tokens])
        facts, copied = running.draft.facts(), _Moment(self.step.device, timed=False)
        self._leaving.append(_Leaving(running.key, written, milliseconds, facts, copied))

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
    tokens = tuple(int(token) for token in leaving.tokens.tolist())
    return Decoded(leaving.key, tokens, leaving.milliseconds, leaving.draft)


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

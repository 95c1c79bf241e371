"""Marks of stages: an NVTX range, and a time by CUDA events, on a CPU by the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import Enum

import torch

from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Observer, StageTiming

try:
    import nvtx
except ImportError:  # nvtx has no wheel for macOS
    nvtx = None


class Marks(Enum):
    """What a stage records."""

    TIMED = "an NVTX range and a time"
    RANGES = "an NVTX range; no event, no clock, no synchronisation"
    NONE = "nothing: a warm-up that a profiler should not take for the work itself"


class StageTimer:
    """Timer of the stages of one page. A stage may run more than once."""

    def __init__(
        self, device: torch.device, observer: Observer | None = None, marks: Marks = Marks.TIMED
    ) -> None:
        self._marks = marks
        self._device = device
        self._observer = observer or Observer()
        self._spans: list[tuple[Stage, float, tuple[torch.cuda.Event, torch.cuda.Event] | None]] = []
        self._calls: dict[Stage, int] = {}

    @contextmanager
    def stage(self, stage: Stage, calls: int = 1, on_host: bool = False) -> Iterator[None]:
        """Mark the block as a stage: an NVTX range of its name, and a time (`on_host`: by the clock)."""
        self._observer.stage_started(stage)
        if self._marks is not Marks.TIMED:
            with _range(stage) if self._marks is Marks.RANGES else nullcontext():
                yield
            return
        self._calls[stage] = self._calls.get(stage, 0) + calls
        events = None
        if self._device.type == "cuda" and not on_host:
            events = (_event(), _event())
        with _range(stage):
            started = time.perf_counter()
            if events:
                events[0].record()
            yield
            if events:
                events[1].record()
        host_ms = (time.perf_counter() - started) * 1e3
        self._spans.append((stage, host_ms, events))
        # On a GPU this is the end of queueing; the result has the device's time.
        self._observer.stage_ended(stage, host_ms)

    def add(self, stage: Stage, milliseconds: float) -> None:
        """Add the time of a stage that ran elsewhere, such as on another thread."""
        if self._marks is Marks.TIMED:
            self._spans.append((stage, milliseconds, None))

    def count(self, stage: Stage, calls: int) -> None:
        """Set the number of calls of a stage that loops inside its range."""
        self._calls[stage] = calls

    def take_share(self, other: StageTimer, of: int) -> None:
        """Add an equal share of another timer's times, which are those of `of` pages together."""
        for row in other.timings():
            self.add(row.stage, row.milliseconds / of)
            self.count(row.stage, row.calls)

    def timings(self) -> tuple[StageTiming, ...]:
        """Times by stage, in stage order. Waits for the device unless all events have passed."""
        if not all(events[1].query() for _, _, events in self._spans if events):  # type: ignore[no-untyped-call]
            torch.cuda.synchronize(self._device)
        total: dict[Stage, float] = {}
        for stage, host_ms, events in self._spans:
            ms = events[0].elapsed_time(events[1]) if events else host_ms
            total[stage] = total.get(stage, 0.0) + ms
        return tuple(
            StageTiming(stage, total[stage], self._calls[stage]) for stage in Stage if stage in total
        )


@contextmanager
def _range(stage: Stage) -> Iterator[None]:
    if nvtx is None:
        yield
        return
    nvtx.push_range(stage.value)
    try:
        yield
    finally:
        nvtx.pop_range()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

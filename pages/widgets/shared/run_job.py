"""A run on a worker thread, and what a page may see of it.

No Streamlit here: worker threads must not touch it, and a page only reads snapshots.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from dsocr_core.errors import Cancelled
from dsocr_core.records import BackendName, CancelToken, Observer, OcrRequest
from dsocr_core.stages import Stage
from pages.widgets.shared.background import Work, WorkState

if TYPE_CHECKING:
    from dsocr_core.outputs.comparison import Comparison

BackendState = Literal["queued", "waiting", "loading", "running", "done", "failed"]
BOTH: tuple[BackendName, ...] = ("a", "b")
_TAIL_CHARACTERS = 4000


class PipelineLike(Protocol):
    """What a run needs of `dsocr_core.run.pipeline.Pipeline`."""

    def compare(
        self,
        request: OcrRequest,
        backends: Sequence[BackendName] = ...,
        observers: dict[BackendName, Observer] | None = ...,
        cancel: CancelToken | None = ...,
        on_wait: Callable[[str], None] | None = ...,
    ) -> Comparison: ...

    def recorded(self, request: OcrRequest, backends: Sequence[BackendName] = ...) -> Comparison | None: ...

    def keep(self, comparison: Comparison, cancelled: bool = False) -> None: ...

    def close(self) -> None: ...


# --- what a page sees of a run --------------------------------------------------------------------


@dataclass(frozen=True)
class StageView:
    """A stage that has begun; `milliseconds` is the time so far while it runs."""

    stage: Stage
    milliseconds: float
    running: bool


@dataclass(frozen=True)
class BackendView:
    backend: BackendName
    state: BackendState
    seconds: float
    """Since the backend began; 0 before."""
    stages: tuple[StageView, ...]
    text_tail: str
    characters: int
    waiting_for: str = ""
    error: str = ""


@dataclass(frozen=True)
class JobView:
    state: WorkState
    seconds: float
    cancelling: bool
    backends: tuple[BackendView, ...]
    error: str = ""


class _BackendWatch:
    """The Observer of one backend; its methods run on the job's thread."""

    def __init__(self, backend: BackendName, lock: threading.Lock) -> None:
        self.backend, self._lock = backend, lock
        self.began: float | None = None
        self.ended: float | None = None
        self.waiting_for = ""
        self.error = ""
        self._spent_ms: dict[Stage, float] = {}
        self._open: dict[Stage, float] = {}
        self._text: list[str] = []
        self._characters = 0

    def begin(self) -> None:
        with self._lock:
            self.began = self.began or time.monotonic()

    def wait_for(self, holder: str) -> None:
        with self._lock:
            self.waiting_for = holder

    def end(self, error: str = "") -> None:
        with self._lock:
            self.ended, self.error = time.monotonic(), error
            self._open.clear()

    def stage_started(self, stage: Stage) -> None:
        with self._lock:
            self.waiting_for = ""
            self._spent_ms.setdefault(stage, 0.0)
            self._open[stage] = time.monotonic()

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        with self._lock:
            self._open.pop(stage, None)
            self._spent_ms[stage] = self._spent_ms.get(stage, 0.0) + milliseconds

    def text(self, delta: str) -> None:
        with self._lock:
            self.waiting_for = ""
            self._text.append(delta)
            self._characters += len(delta)

    def view(self, now: float) -> BackendView:
        with self._lock:
            stages = tuple(
                StageView(
                    stage,
                    self._spent_ms[stage] + (now - self._open[stage]) * 1000
                    if stage in self._open
                    else self._spent_ms[stage],
                    stage in self._open,
                )
                for stage in Stage
                if stage in self._spent_ms
            )
            state: BackendState = "queued"
            if self.ended is not None:
                state = "failed" if self.error else "done"
            elif self.waiting_for:
                state = "waiting"
            elif self.began is not None:
                state = "running" if stages or self._characters else "loading"
            tail = "".join(self._text[-_TAIL_CHARACTERS:])[-_TAIL_CHARACTERS:]
            seconds = 0.0 if self.began is None else (self.ended or now) - self.began
            return BackendView(
                self.backend, state, seconds, stages, tail, self._characters, self.waiting_for, self.error
            )


class Job(Work):
    """One run. Pages call `view`, `cancel` and, once it is over, `comparison`.

    Cancelled, it stops between tokens, or by stopping the vendor's worker; a backend that was through by then
    is kept.
    """

    _numbers = itertools.count(1)

    def __init__(
        self, pipeline: PipelineLike, key: str, request: OcrRequest, backends: tuple[BackendName, ...]
    ) -> None:
        self.number = next(self._numbers)
        super().__init__(f"run {self.number}")
        self.key, self.request, self.backends = key, request, backends
        self.comparison: Comparison | None = None
        self._pipeline = pipeline
        self._watches: dict[BackendName, _BackendWatch] = {
            backend: _BackendWatch(backend, self._lock) for backend in backends
        }

    def view(self) -> JobView:
        """A snapshot, safe from any thread."""
        now = time.monotonic()
        backends = tuple(watch.view(now) for watch in self._watches.values())
        return JobView(self._state, self.seconds(now), self.cancelling, backends, self._error)

    def _do(self) -> WorkState:
        """The backends one after the other, so that the first one's result is known while the next runs."""
        try:
            for backend, watch in self._watches.items():
                self._read(backend, watch)
        except Cancelled:
            if self.comparison is not None:
                self._pipeline.keep(self.comparison, cancelled=True)
            raise
        if self.comparison is not None:
            self._pipeline.keep(self.comparison)  # both backends as one run, with their parity
        return "failed" if self.comparison and self.comparison.errors else "done"

    def _read(self, backend: BackendName, watch: _BackendWatch) -> None:
        watch.begin()
        part = self._pipeline.compare(
            self.request, (backend,), {backend: watch}, self._cancel, watch.wait_for
        )
        watch.end(part.errors.get(backend, ""))
        if self._pipeline not in _settled:
            _settled.add(self._pipeline)
            settle_memory()  # the model is loaded now
        with self._lock:
            self.comparison = self.comparison.joined(part) if self.comparison else part


_settled: weakref.WeakSet[PipelineLike] = weakref.WeakSet()
"""Pipelines whose model has been loaded and counted out."""


def settle_memory() -> None:
    """Take what is loaded by now, which stays for good, out of the collector's count.

    Streamlit collects all generations after every script run; with torch and a model loaded that stops
    every thread for a tenth of a second, decode steps included. A review of many pages costs as much. What
    was taken out before and let go since is given back.
    """
    gc.unfreeze()
    # At the end everything counts again, or extensions complain of leaks.
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)
    gc.collect()
    gc.freeze()

"""Work that takes its time, on a thread of its own: begun, cancelled, and over in one of three ways.

No Streamlit here: worker threads must not touch it, and a page only reads snapshots.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from dsocr_core.base.error_log import unforeseen
from dsocr_core.base.errors import Cancelled, DsocrError

_WATCH_S, _MISSES = 0.4, 2
"""A connection that is made anew at once costs nothing."""

JobState = Literal["running", "done", "failed", "cancelled"]
T = TypeVar("T")


@dataclass(frozen=True)
class JobView:
    """A snapshot of a job; `done` is a share of the whole, 0 to 1."""

    state: JobState
    seconds: float
    cancelling: bool
    error: str = ""
    words: str = ""
    done: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far; None while there is too little to tell."""
        return self.seconds * (1 - self.done) / self.done if self.done > 0.05 else None


class Job(Generic[T]):
    """One piece of work. Pages call `view`, `cancel` and, once it is over, `result`.

    The work is given the job: it looks at `token` for a wish to stop, tells how far it is with `say`, and may
    raise Cancelled, and DsocrError for what a user can put right. `about` is what the work is of.
    """

    _numbers = itertools.count(1)

    def __init__(self, name: str, about: object, work: Callable[[Job[T]], T]) -> None:
        self.number = next(self._numbers)
        self.about, self.result = about, None
        self.token = threading.Event()
        self._name, self._work = f"{name} {self.number}", work
        self._state: JobState = "running"
        self._error, self._words, self._done = "", "loading", 0.0
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._ended: float | None = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    result: T | None

    def start(self, wanted: Callable[[], bool] | None = None) -> None:
        """Begin; once `wanted` says no, twice in a row, the work is cancelled (its tab was closed)."""
        self._thread.start()
        if wanted is not None:
            watch = threading.Thread(
                target=self._watch, args=(wanted,), name=f"{self._name} watch", daemon=True
            )
            watch.start()

    def _watch(self, wanted: Callable[[], bool]) -> None:
        missed = 0
        while self.running and missed < _MISSES:
            self._thread.join(_WATCH_S)
            missed = 0 if wanted() else missed + 1
        if self.running:
            self.cancel()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def cancel(self) -> None:
        """Ask the work to stop; how soon is up to what it does."""
        self.token.set()

    @property
    def running(self) -> bool:
        return self._state == "running"

    def say(self, words: str, done: float | None = None) -> None:
        """Tell a page what the work is at, and how far it is."""
        with self._lock:
            self._words = words
            self._done = self._done if done is None else min(max(done, 0.0), 1.0)

    def wait_for(self, holder: str) -> None:
        """Tell a page who holds the device."""
        self.say(f"waiting for {holder}")

    def view(self) -> JobView:
        """A snapshot, safe from any thread."""
        with self._lock:
            cancelling = self.token.is_set() and self.running
            seconds = (self._ended or time.monotonic()) - self._began
            return JobView(self._state, seconds, cancelling, self._error, self._words, self._done)

    def _run(self) -> None:
        state: JobState = "failed"
        error = ""
        try:
            self.result, state = self._work(self), "done"
        except Cancelled:
            state = "cancelled"
        except DsocrError as problem:
            error = str(problem)
        except Exception as problem:  # noqa: BLE001 - a thread has nobody above it who would hear
            error = unforeseen(problem, self._name)
        with self._lock:
            self._ended = time.monotonic()
            self._state, self._error = state, error

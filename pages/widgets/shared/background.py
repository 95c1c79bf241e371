"""Something that takes its time, on a thread of its own: begun, cancelled, and over in one of three ways.

No Streamlit here: worker threads must not touch it, and a page only reads snapshots.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from dsocr_core.error_log import unforeseen
from dsocr_core.errors import Cancelled, DsocrError

_WATCH_S, _MISSES = 0.4, 2
"""A connection that is made anew at once costs nothing."""

WorkState = Literal["running", "done", "failed", "cancelled"]


class Work:
    """A subclass does the work in `_do`, which checks `_cancel` and holds `_lock` where pages read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._state: WorkState = "running"
        self._error = ""
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._began = time.monotonic()
        self._ended: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, wanted: Callable[[], bool] | None = None) -> None:
        """Begin; once `wanted` says no, twice in a row, the work is cancelled (its tab was closed)."""
        self._thread.start()
        if wanted is not None:
            threading.Thread(
                target=self._watch, args=(wanted,), name=f"{self._name} watch", daemon=True
            ).start()

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
        """Asks the work to stop; how soon is up to what it does."""
        self._cancel.set()

    @property
    def running(self) -> bool:
        return self._state == "running"

    @property
    def cancelling(self) -> bool:
        return self._cancel.is_set() and self.running

    def seconds(self, now: float | None = None) -> float:
        """Since it began, until it was over."""
        return (self._ended or now or time.monotonic()) - self._began

    def _do(self) -> WorkState:
        """The work; how it ended. May raise Cancelled, and DsocrError for what a user can put right."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            state, error = self._do(), ""
        except Cancelled:
            state, error = "cancelled", ""
        except DsocrError as problem:
            state, error = "failed", str(problem)
        except Exception as problem:  # noqa: BLE001 - a thread has nobody above it who would hear
            state, error = "failed", unforeseen(problem, self._name)
        with self._lock:
            self._ended = time.monotonic()
            self._state, self._error = state, error

"""A trace on a worker thread, and what a page may see of it. No Streamlit here."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsocr_core.outputs.trace_records import TraceSummary
from dsocr_core.records import OcrRequest
from pages.widgets.shared.background import Work, WorkState

if TYPE_CHECKING:
    from dsocr_core.trace.sides import Way
    from pages.widgets.shared.app_session import AppSession


@dataclass(frozen=True)
class TraceChoice:
    """What the page asks for: two backends and how many decode steps."""

    a: Way = "eager"
    b: Way = "vendor"
    steps: int = 8


@dataclass(frozen=True)
class TraceView:
    """A snapshot; `done` is a share of the whole, 0 to 1."""

    state: WorkState
    seconds: float
    cancelling: bool
    words: str
    done: float
    error: str


class TraceJob(Work):
    """One trace. Pages call `view`, `cancel` and, once it is over, `summary`."""

    _numbers = itertools.count(1)

    def __init__(self, session: AppSession, key: str, request: OcrRequest, choice: TraceChoice) -> None:
        self.number = next(self._numbers)
        super().__init__(f"trace {self.number}")
        self.key, self.request, self.choice = key, request, choice
        self.summary: TraceSummary | None = None
        self.not_recorded = ""
        """Why the history does not have it."""
        self._session = session
        self._words, self._done = "loading", 0.0

    def view(self) -> TraceView:
        """A snapshot, safe from any thread."""
        with self._lock:
            return TraceView(
                self._state, self.seconds(time.monotonic()), self.cancelling, self._words, self._done,
                self._error,
            )  # fmt: skip

    def _do(self) -> WorkState:
        made = self._session.trace(self.request, self.choice, self._progress, self._cancel, self._wait)
        with self._lock:
            self.summary, self.not_recorded = made
        return "done"

    def _progress(self, side: str, call: int, calls: int) -> None:
        step = "prefill" if call == 0 else f"decode step {call} of {calls - 1}"
        part = {"A": 0, "B": 1}.get(side[:1], 2)
        with self._lock:
            self._words = f"{side}: {step}"
            self._done = (part + call / calls) / 3

    def _wait(self, holder: str) -> None:
        with self._lock:
            self._words = f"waiting for {holder}"

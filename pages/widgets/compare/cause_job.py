"""The search for the cause of a difference on a worker thread. No Streamlit here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dsocr_core.records import CancelToken, OcrRequest, OcrResult
from dsocr_core.settings import Settings
from pages.widgets.shared.background import Work, WorkState
from pages.widgets.shared.runner import run_key

if TYPE_CHECKING:
    from dsocr_core.why.run import PageAnswer

BUDGET_S = 600.0
"""Seconds of one search."""


class Searcher(Protocol):
    """Finds the cause of what B wrote on a page within so many runs of A."""

    def __call__(
        self,
        settings: Settings,
        request: OcrRequest,
        b: OcrResult,
        runs: int,
        progress: Callable[[str, int, int], None],
        cancel: CancelToken,
        on_wait: Callable[[str], None],
    ) -> PageAnswer: ...


def search(
    settings: Settings,
    request: OcrRequest,
    b: OcrResult,
    runs: int,
    progress: Callable[[str, int, int], None],
    cancel: CancelToken,
    on_wait: Callable[[str], None],
) -> PageAnswer:
    """`dsocr_core.why` on one page, B being a result that is there. Raises DsocrError and Cancelled."""
    # Importing torch takes a second or two.
    from dsocr_core.why.reference import of_result
    from dsocr_core.why.run import why
    from dsocr_core.why.search import Budget

    answer = why(
        settings.for_comparison().of_side("a"),
        [(request.image, request.name)],
        lambda path, name: of_result(b),
        Budget(runs, BUDGET_S),
        progress,
        cancel,
        on_wait,
    )
    return answer.pages[0]


@dataclass(frozen=True)
class CauseView:
    """A snapshot. `run` of at most `runs` runs of A is being made."""

    state: WorkState
    seconds: float
    cancelling: bool
    words: str
    run: int
    runs: int
    error: str


class CauseJob(Work):
    """One search. Pages call `view`, `cancel` and, once it is over, `answer`."""

    _numbers = itertools.count(1)

    def __init__(
        self, settings: Settings, request: OcrRequest, b: OcrResult, runs: int, find: Searcher
    ) -> None:
        super().__init__(f"cause {next(self._numbers)}")
        self.answer: PageAnswer | None = None
        self._settings, self._request, self._b, self._find = settings, request, b, find
        self._key, self._runs = run_key(settings, request), runs
        self._words, self._run_number = "loading", 0

    def about(self, settings: Settings, request: OcrRequest, b: OcrResult) -> bool:
        """Whether this is what was searched for: B may have read the page again since."""
        return self._key == run_key(settings, request) and self._b.text_raw == b.text_raw

    def view(self) -> CauseView:
        """A snapshot, safe from any thread."""
        with self._lock:
            return CauseView(
                self._state, self.seconds(time.monotonic()), self.cancelling, self._words, self._run_number,
                self._runs, self._error,
            )  # fmt: skip

    def _do(self) -> WorkState:
        answer = self._find(
            self._settings, self._request, self._b, self._runs, self._progress, self._cancel, self._wait
        )
        with self._lock:
            self.answer = answer
        return "done"

    def _progress(self, words: str, run: int, runs: int) -> None:
        with self._lock:
            self._words, self._run_number, self._runs = words, run, runs

    def _wait(self, holder: str) -> None:
        with self._lock:
            self._words = f"waiting for {holder}"

"""A run on a worker thread, and what a page may read of it.

No Streamlit here: worker threads must not touch it, and a page only reads snapshots.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dsocr_core.base.errors import Cancelled
from dsocr_core.models.family import all_stages
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Observer, OcrRequest, Side
from pages.widgets.shared.job import Job, JobView

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison
    from pages.widgets.shared.app_session import AppSession

SideState = Literal["queued", "waiting", "loading", "running", "done", "failed"]
_TAIL_CHARACTERS = 4000


# --- what a page reads of a run -------------------------------------------------------------------


@dataclass(frozen=True)
class StageView:
    """A stage that has begun; `milliseconds` is the time so far while it runs."""

    stage: Stage
    milliseconds: float
    running: bool


@dataclass(frozen=True)
class SideView:
    side: Side
    state: SideState
    seconds: float
    """Since its backend began; 0 before."""
    stages: tuple[StageView, ...]
    text_tail: str
    characters: int
    waiting_for: str = ""
    error: str = ""
    tokens: int = 0
    """New tokens so far; 0 where they are not known. Only a backend that reports its decode stage gives its
    text token by token: pieces of a stream from elsewhere are of any size."""
    decode_s: float = 0.0
    """Time of decode so far."""


class _SideWatch(Observer):
    """The Observer of one side's backend; its methods run on the job's thread."""

    def __init__(self, side: Side, lock: threading.Lock) -> None:
        self.side, self._lock = side, lock
        self.began: float | None = None
        self.ended: float | None = None
        self.waiting_for = ""
        self.error = ""
        self._spent_ms: dict[Stage, float] = {}
        self._open: dict[Stage, float] = {}
        self._text: list[str] = []
        self._characters = 0
        self._tokens = 0

    def begin(self) -> None:
        with self._lock:
            self.began = self.began or time.monotonic()

    def wait_for(self, holder: str) -> None:
        with self._lock:
            self.waiting_for = f"waiting for {holder}"

    def end(self, error: str = "") -> None:
        with self._lock:
            self.ended, self.error = time.monotonic(), error
            self._open.clear()

    def preparing(self, words: str) -> None:
        with self._lock:
            self.waiting_for = words

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
            self._tokens += Stage.DECODE in self._spent_ms

    def view(self, now: float) -> SideView:
        with self._lock:
            stages = tuple(
                StageView(
                    stage,
                    self._spent_ms[stage] + (now - self._open[stage]) * 1000
                    if stage in self._open
                    else self._spent_ms[stage],
                    stage in self._open,
                )
                for stage in all_stages()
                if stage in self._spent_ms
            )
            state: SideState = "queued"
            if self.ended is not None:
                state = "failed" if self.error else "done"
            elif self.waiting_for:
                state = "waiting"
            elif self.began is not None:
                state = "running" if stages or self._characters else "loading"
            tail = "".join(self._text[-_TAIL_CHARACTERS:])[-_TAIL_CHARACTERS:]
            seconds = 0.0 if self.began is None else (self.ended or now) - self.began
            decode = next((stage.milliseconds for stage in stages if stage.stage == Stage.DECODE), 0.0)
            return SideView(
                self.side, state, seconds, stages, tail, self._characters, self.waiting_for, self.error,
                self._tokens, decode / 1000,
            )  # fmt: skip

    def whole_text(self) -> str:
        """Give what has come so far."""
        with self._lock:
            return "".join(self._text)


class ReadJob(Job["Comparison"]):
    """One run of a page. Pages call `side_views` beside `view`, and `comparison`, which grows side by side.

    Cancelled, it stops between tokens, or by stopping the vendor's worker; what the other side had finished
    by then is recorded.
    """

    def __init__(self, session: AppSession, key: str, request: OcrRequest, sides: tuple[Side, ...]) -> None:
        super().__init__("run", key, self._read_all)
        self.request, self.sides = request, sides
        self.comparison: Comparison | None = None
        self.not_recorded = ""
        """Why the history does not have it."""
        self._session = session
        self._watches: dict[Side, _SideWatch] = {side: _SideWatch(side, self._lock) for side in sides}

    def view(self) -> JobView:
        """A snapshot; a run one of whose sides failed has failed."""
        view = super().view()
        failed = view.state == "done" and self.comparison is not None and self.comparison.errors
        return replace(view, state="failed") if failed else view

    def side_views(self) -> tuple[SideView, ...]:
        """Snapshots of the sides, safe from any thread."""
        now = time.monotonic()
        return tuple(watch.view(now) for watch in self._watches.values())

    def partial_texts(self) -> dict[Side, str]:
        """Give, of a cancelled run, what the sides that did not finish had written by then."""
        done = self.comparison.results if self.comparison else {}
        texts = {side: watch.whole_text() for side, watch in self._watches.items() if side not in done}
        return {side: text for side, text in texts.items() if text.strip()}

    def _read_all(self, job: Job[Comparison]) -> Comparison:
        """The sides one after the other, so that the first one's result is shown while the next runs."""
        self._session.check(self.sides)
        try:
            for side, watch in self._watches.items():
                self._read(side, watch)
        except Cancelled:
            if self.comparison is not None:
                self.not_recorded = self._session.keep(self.comparison, cancelled=True)
            raise
        assert self.comparison is not None
        # Both sides as one run, with their parity.
        self.not_recorded = self._session.keep(self.comparison)
        return self.comparison

    def _read(self, side: Side, watch: _SideWatch) -> None:
        watch.begin()
        part = self._session.compare(self.request, (side,), {side: watch}, self.token, watch.wait_for)
        watch.end(part.errors.get(side, ""))
        with self._lock:
            self.comparison = self.comparison.joined(part) if self.comparison else part

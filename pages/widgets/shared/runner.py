"""Pages read on threads: the sessions that all browser tabs share, and the results there are.

No Streamlit here.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.threads import wait_politely
from dsocr_core.models.stages import Stage
from dsocr_core.read.session import Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, Observer, OcrRequest, Side
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.settings import Settings
from pages.widgets.shared.job import J, Job
from pages.widgets.shared.labels import side_label

log = logging.getLogger(__name__)
_MOST_SESSIONS, _MOST_COMPARISONS = 2, 32
_TAIL_CHARACTERS = 600


class AppSession(Session):
    """A session that records. Its backends are opened at the first run: recorded results need no torch."""

    def __init__(self, settings: Settings) -> None:
        wait_politely()
        super().__init__(settings)

    def keep(
        self, comparison: Comparison, cancelled: bool = False, machine: MachineWatch | None = None
    ) -> str:
        """Record it; gives why it could not be, or nothing: a result is worth more than its record."""
        from dsocr_core.read.run import save_comparison  # a second, which the app's start does not take

        try:
            save_comparison(self.settings, comparison, cancelled, machine)
        except (DsocrError, OSError) as error:
            log.warning("the run was not recorded: %s", error)
            return f"This run was not recorded: {error}"
        return ""


# --- a page on both sides -------------------------------------------------------------------------


class SideWatch(Observer):
    """The Observer of one side's backend, whose methods run on the job's thread; a page reads the rest."""

    def __init__(self, side: Side) -> None:
        self.side, self.waiting_for, self.error = side, "", ""
        self._began, self._ended = 0.0, 0.0
        self._spent_ms: dict[Stage, float] = {}
        self._open: dict[Stage, float] = {}
        self._text: list[str] = []
        self.characters, self.tokens = 0, 0
        """Length of the text so far. Tokens count only for a backend that reports its decode stage: pieces
        of other streams are of any size."""

    def begin(self) -> None:
        self._began = time.monotonic()

    def wait_for(self, holder: str) -> None:
        self.waiting_for = f"waiting for {holder}"

    def end(self, error: str = "") -> None:
        self._open, self.error, self._ended = {}, error, time.monotonic()

    def stage_started(self, stage: Stage) -> None:
        self.waiting_for = ""
        self._open |= {stage: time.monotonic()}

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        self._spent_ms |= {stage: self._spent_ms.get(stage, 0.0) + milliseconds}
        self._open = {each: began for each, began in self._open.items() if each != stage}

    def text(self, delta: str) -> None:
        self.waiting_for = ""
        self._text.append(delta)
        self.characters += len(delta)
        self.tokens += Stage.DECODE in self._open or Stage.DECODE in self._spent_ms

    @property
    def state(self) -> Literal["queued", "waiting", "loading", "running", "done", "failed"]:
        if self._ended:
            return "failed" if self.error else "done"
        if self.waiting_for:
            return "waiting"
        if not self._began:
            return "queued"
        return "running" if self._open or self._spent_ms or self.characters else "loading"

    @property
    def took_ms(self) -> float:
        return 1000 * ((self._ended or time.monotonic()) - self._began) if self._began else 0.0

    def stages(self) -> list[tuple[Stage, float, bool]]:
        """Stages that have begun, with their time so far, and whether each runs."""
        spent, running, now = self._spent_ms, self._open, time.monotonic()
        return [
            (stage, spent.get(stage, 0.0) + 1000 * (now - running.get(stage, now)), stage in running)
            for stage in Stage if stage in spent or stage in running
        ]  # fmt: skip

    def tail(self) -> str:
        """The end of the text so far."""
        return "".join(self._text[-_TAIL_CHARACTERS:])[-_TAIL_CHARACTERS:]

    def whole_text(self) -> str:
        return "".join(self._text)


class ReadJob(Job[Comparison]):
    """One run of a page; `comparison` grows side by side.

    Cancelled, it stops between tokens, or by stopping the vendor's worker; what the other side had finished
    by then is recorded.
    """

    def __init__(self, session: AppSession, request: OcrRequest, sides: tuple[Side, ...], key: str) -> None:
        super().__init__("run", key, self._read_all)
        self.request = request
        self.comparison: Comparison | None = None
        self.not_recorded = ""
        """Why the history does not have it."""
        self.watches = {side: SideWatch(side) for side in sides}
        self._session = session

    def partial_texts(self) -> dict[Side, str]:
        """Give, of a cancelled run, what the sides that did not finish had written by then."""
        done = self.comparison.results if self.comparison else {}
        texts = {side: watch.whole_text() for side, watch in self.watches.items() if side not in done}
        return {side: text for side, text in texts.items() if text.strip()}

    def _read_all(self, _: Job[Comparison]) -> Comparison:
        """The sides one after the other, so that the first one's result is shown while the next runs."""
        self._session.check(tuple(self.watches))
        machine, cancelled = MachineWatch(), True
        try:
            for side, watch in self.watches.items():
                watch.begin()
                part = self._session.compare(self.request, (side,), {side: watch}, self.token, watch.wait_for)
                watch.end(part.errors.get(side, ""))
                self.comparison = self.comparison.joined(part) if self.comparison else part
            cancelled = False
        except Cancelled:
            if self.comparison is None:
                raise
        assert self.comparison is not None
        # Both sides as one run, with their parity.
        self.not_recorded = self._session.keep(self.comparison, cancelled, machine)
        if cancelled:
            raise Cancelled
        return self.comparison


# --- the sessions of all tabs -----------------------------------------------------------------------


@dataclass(frozen=True)
class PageResults:
    """The results of one page: this tab's run, completed by what was recorded before."""

    comparison: Comparison | None = None
    recorded: tuple[Side, ...] = ()
    """Sides whose result was found again instead of run."""
    recorded_at: str = ""
    problems: tuple[str, ...] = ()
    cancelled: bool = False


class Runner:
    """The sessions of this process, one per settings, shared by every browser tab."""

    def __init__(self, make: Callable[[Settings], AppSession] = AppSession) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, AppSession] = OrderedDict()
        self._in_use: Counter[str] = Counter()
        self._jobs: dict[str, list[Job[Any]]] = {}
        self._found: OrderedDict[str, tuple[int, Comparison]] = OrderedDict()

    def begin(
        self, settings: Settings, make: Callable[[AppSession], J], wanted: Callable[[], bool] | None = None
    ) -> J:
        """Begin work in the session of these settings, cancelled when `wanted` no longer holds.

        Raises DsocrError when the settings cannot make a session.
        """
        with self._using(settings) as session:
            job = make(session)
            with self._lock:
                jobs = self._jobs.setdefault(settings_key(settings), [])
                jobs[:] = [*(other for other in jobs if other.running), job]
            job.start(wanted)
        return job

    def read(
        self, settings: Settings, request: OcrRequest, sides: tuple[Side, ...] = SIDES,
        wanted: Callable[[], bool] | None = None,
    ) -> ReadJob:  # fmt: skip
        """Begin a run of a page. Raises DsocrError."""
        key = run_key(settings, request)
        return self.begin(settings, lambda session: ReadJob(session, request, sides, key), wanted)

    def page_results(self, settings: Settings, request: OcrRequest, job: ReadJob | None) -> PageResults:
        """The results of a page. `job` is this tab's last run, whatever it was about."""
        key = run_key(settings, request)
        mine = job if job is not None and job.about == key else None
        over, fresh = mine is not None and not mine.running, mine.comparison if mine is not None else None
        try:
            recorded = self._recorded(key, settings, request)
        except DsocrError as error:
            return PageResults(fresh, problems=(str(error),))
        problems = [mine.error, mine.not_recorded] if mine is not None and over else []
        if fresh is not None and over:
            problems += [
                f"{side_label(side, settings.backend(side))}: {text}" for side, text in fresh.errors.items()
            ]
        # A side that just failed shows its failure, not an older success.
        done = () if fresh is None else (*fresh.results, *fresh.errors)
        taken = tuple(side for side in (recorded.results if recorded else ()) if side not in done)
        comparison = fresh or recorded
        if recorded is not None and fresh is not None and taken:
            more: dict[str, Any] = {side: recorded.results[side] for side in taken}
            comparison = replace(fresh, **more)
        return PageResults(
            comparison, taken, (recorded.recorded_at or "") if recorded is not None and taken else "",
            tuple(filter(None, problems)), mine is not None and mine.state == "cancelled",
        )  # fmt: skip

    def _recorded(self, key: str, settings: Settings, request: OcrRequest) -> Comparison | None:
        """Find what earlier runs of the same page and settings gave, of as many sides as there are."""
        with self._lock:
            # What was found before the last run of this page may be old.
            jobs = self._jobs.get(settings_key(settings), ())
            ended = max((job.number for job in jobs if job.about == key and not job.running), default=0)
            since, complete = self._found.get(key, (0, None))
        if complete is not None and since == ended:
            return complete
        with self._using(settings) as session:
            found = session.recorded(request, SIDES)
            if found is not None:
                with self._lock:
                    self._found[key] = ended, found
                    while len(self._found) > _MOST_COMPARISONS:
                        self._found.popitem(last=False)
            for side in () if found else SIDES:
                found = found or session.recorded(request, (side,))
        return found

    @contextmanager
    def _using(self, settings: Settings) -> Iterator[AppSession]:
        """The session of these settings, open in the block and while a job runs that begins there.

        The least used idle ones are closed.
        """
        key = settings_key(settings)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = self._make(settings)
            self._sessions.move_to_end(key)
            self._in_use[key] += 1
            idle = [
                other for other in self._sessions
                if not self._in_use[other] and not any(job.running for job in self._jobs.get(other, ()))
            ]  # fmt: skip
            surplus = [self._sessions.pop(other) for other in idle[: -(_MOST_SESSIONS - 1)]]
            session = self._sessions[key]
        try:
            for closing in surplus:
                closing.close()
            yield session
        finally:
            with self._lock:
                self._in_use[key] -= 1


def settings_key(settings: Settings) -> str:
    """A name for what a session depends on; how a page is asked for is not part of it."""
    facts = asdict(settings)
    facts.pop("backends")  # what is chosen of them is in the sides
    if settings.a is None and settings.b is None:  # a side that was named has a request of its own
        for name in ("preset", "prompt", "infer", "a", "b"):
            facts.pop(name, None)
    return json.dumps(facts, sort_keys=True, default=str)


def run_key(settings: Settings, request: OcrRequest) -> str:
    """A name for one page under one set of settings."""
    return json.dumps([settings_key(settings), asdict(request)], sort_keys=True, default=str)

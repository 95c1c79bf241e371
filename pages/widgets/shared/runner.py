"""The sessions that all browser tabs share, and the results there are of a page.

No Streamlit here.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, OcrRequest, Side
from dsocr_core.settings import Settings
from pages.widgets.shared.app_session import AppSession, TraceChoice, Traced, trace_job
from pages.widgets.shared.job import Job
from pages.widgets.shared.labels import side_label
from pages.widgets.shared.run_job import ReadJob

log = logging.getLogger(__name__)

_MOST_SESSIONS = 2
_MOST_COMPARISONS = 32


@dataclass(frozen=True)
class PageResults:
    """The results of one page: this tab's run, completed by what was recorded before."""

    comparison: Comparison | None = None
    recorded: tuple[Side, ...] = ()
    """Sides whose result was found again instead of run."""
    recorded_at: str = ""
    problems: tuple[str, ...] = ()
    cancelled: bool = False


def merged(
    recorded: Comparison | None, fresh: Comparison | None
) -> tuple[Comparison | None, tuple[Side, ...]]:
    """`fresh`, with the results it lacks taken from `recorded`; and the sides that were taken."""
    if recorded is None or fresh is None:
        found = tuple(side for side in SIDES if recorded is not None and getattr(recorded, side))
        return fresh or recorded, () if fresh else found
    # A side that just failed shows its failure, not an older success.
    taken = tuple(
        side
        for side in SIDES
        if getattr(recorded, side) and not getattr(fresh, side) and side not in fresh.errors
    )
    return replace(fresh, **{side: getattr(recorded, side) for side in taken}), taken


class Runner:
    """The sessions of this process, one per settings, shared by every browser tab."""

    def __init__(self, make: Callable[[Settings], AppSession] = AppSession) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, AppSession] = OrderedDict()
        self._in_use: Counter[str] = Counter()
        self._jobs: dict[str, list[Job[Any]]] = {}
        self._found: OrderedDict[str, tuple[int, Comparison]] = OrderedDict()
        self._merged: OrderedDict[
            str, tuple[Comparison | None, Comparison | None, Comparison | None, tuple[Side, ...]]
        ] = OrderedDict()

    def start(
        self,
        settings: Settings,
        request: OcrRequest,
        sides: tuple[Side, ...] = SIDES,
        wanted: Callable[[], bool] | None = None,
    ) -> ReadJob:
        """Begin a run, cancelled when `wanted` no longer holds.

        Raises DsocrError when the settings cannot make a session.
        """
        with self.using(settings) as session:
            job = ReadJob(session, run_key(settings, request), request, sides)
            self.begin(job, settings, wanted)
        return job

    def start_trace(
        self,
        settings: Settings,
        request: OcrRequest,
        choice: TraceChoice,
        wanted: Callable[[], bool] | None = None,
    ) -> Job[Traced]:
        """Begin a trace of one page, cancelled when `wanted` no longer holds.

        Raises DsocrError when the settings cannot make a session.
        """
        with self.using(settings) as session:
            job = trace_job(session, run_key(settings, request), request, choice)
            self.begin(job, settings, wanted)
        return job

    def begin(self, job: Job[Any], settings: Settings, wanted: Callable[[], bool] | None) -> None:
        """Begin work under these settings, cancelled when `wanted` no longer holds."""
        with self._lock:
            jobs = self._jobs.setdefault(settings_key(settings), [])
            jobs[:] = [*(other for other in jobs if other.running), job]
        job.start(wanted)

    def page_results(self, settings: Settings, request: OcrRequest, job: ReadJob | None) -> PageResults:
        """The results of a page. `job` is this tab's last run, whatever it was about."""
        key = run_key(settings, request)
        mine = job if job is not None and job.about == key else None
        fresh = mine.comparison if mine is not None else None
        try:
            recorded = self._recorded(key, settings, request)
        except DsocrError as error:
            return PageResults(fresh, problems=(str(error),))
        with self._lock:
            # The same object as last time if nothing changed: its parity report is computed once.
            before = self._merged.get(key)
            if before is None or before[0] is not recorded or before[1] is not fresh:
                self._merged[key] = (recorded, fresh, *merged(recorded, fresh))
                while len(self._merged) > _MOST_COMPARISONS:
                    self._merged.popitem(last=False)
            _, _, comparison, taken = self._merged[key]
        problems: list[str] = []
        if mine is not None and not mine.running:
            view = mine.view()
            problems += [text for text in (view.error, mine.not_recorded) if text]
        if fresh is not None and not (mine and mine.running):
            problems += [
                f"{side_label(side, settings.backend(side))}: {text}" for side, text in fresh.errors.items()
            ]
        return PageResults(
            comparison,
            taken,
            (recorded.recorded_at or "") if recorded is not None and taken else "",
            tuple(problems),
            mine is not None and mine.view().state == "cancelled",
        )

    def _recorded(self, key: str, settings: Settings, request: OcrRequest) -> Comparison | None:
        """Find what earlier runs of the same page and settings gave, of as many sides as there are."""
        with self._lock:
            ended = self._last_ended(key, settings)
            since, complete = self._found.get(key, (0, None))
        if complete is not None and since == ended:
            return complete
        with self.using(settings) as session:
            found = session.recorded(request, SIDES)
            if found is not None:
                with self._lock:
                    self._found[key] = ended, found
                    while len(self._found) > _MOST_COMPARISONS:
                        self._found.popitem(last=False)
            for side in () if found else SIDES:
                found = found or session.recorded(request, (side,))
        return found

    def _last_ended(self, key: str, settings: Settings) -> int:
        """The number of the last run of this page that is over; what was found before it may be old."""
        jobs = self._jobs.get(settings_key(settings), ())
        runs = (job for job in jobs if isinstance(job, ReadJob))
        return max((job.number for job in runs if job.about == key and not job.running), default=0)

    @contextmanager
    def using(self, settings: Settings) -> Iterator[AppSession]:
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
                other
                for other in self._sessions
                if not self._in_use[other] and not any(job.running for job in self._jobs.get(other, ()))
            ]
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

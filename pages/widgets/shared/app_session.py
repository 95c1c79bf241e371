"""The session of the app: what it reads and traces is recorded. No Streamlit here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.threads import wait_politely
from dsocr_core.read.session import Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, CancelToken, Observer, OcrRequest, OcrResult, Side
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.runs.record import save_comparison
from dsocr_core.settings import Settings
from pages.widgets.shared.job import Job

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage
    from dsocr_core.trace.sides import Way

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TraceChoice:
    """Choice of the page: two backends and how many decode steps."""

    a: Way = "eager"
    b: Way = "vendor"
    steps: int = 8


Traced = tuple[TraceSummary, str]
"""Summary that was found, and why the history does not have it, or nothing."""


class AppSession(Session):
    """A session that records. Its backends are opened at the first run: recorded results need no torch."""

    def __init__(self, settings: Settings) -> None:
        wait_politely()
        super().__init__(settings)
        self._of_run = threading.local()
        """Each run has a thread, and its own watch of the machine."""

    def compare(
        self,
        request: OcrRequest,
        sides: Iterable[Side] = SIDES,
        observers: Mapping[Side, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
        prepared: PreparedPage | None = None,
        a: OcrResult | None = None,
    ) -> Comparison:
        self._of_run.machine = getattr(self._of_run, "machine", None) or MachineWatch()
        return super().compare(request, sides, observers, cancel, on_wait, prepared, a)

    def trace(
        self,
        request: OcrRequest,
        choice: TraceChoice,
        progress: Callable[[str, int, int], None],
        cancel: CancelToken,
        on_wait: Callable[[str], None],
    ) -> tuple[TraceSummary, str]:
        """Trace a page and record the summary in the history; why it is not there, or nothing.

        Raises DsocrError or Cancelled.
        """
        from dsocr_core.backends.on_device import PublishedBackend
        from dsocr_core.trace.recorder import record_trace
        from dsocr_core.trace.run import TracePlan, trace_page

        plan = TracePlan(choice.a, choice.b, choice.steps)
        with self._uses.use(cancel.set):
            # The worker of the published code stays warm for the next run.
            reference = None if self.settings.names_backend("b") else self.side("b")
            vendor = reference if isinstance(reference, PublishedBackend) else None
            summary = trace_page(self.settings, request, plan, progress, cancel, on_wait, vendor)
        if self.settings.history:
            try:
                record_trace(self.settings, request, plan, summary)
            except DsocrError as error:  # what was found is worth more than its record
                log.warning("the trace was not recorded: %s", error)
                return summary, f"This trace was not recorded: {error}"
        return summary, ""

    def keep(self, comparison: Comparison, cancelled: bool = False) -> str:
        """Record it; gives why it could not be, or nothing: a result is worth more than its record."""
        machine, self._of_run.machine = getattr(self._of_run, "machine", None), None
        try:
            save_comparison(self.settings, comparison, cancelled, machine)
        except (DsocrError, OSError) as error:
            log.warning("the run was not recorded: %s", error)
            return f"This run was not recorded: {error}"
        return ""


def trace_job(session: AppSession, key: str, request: OcrRequest, choice: TraceChoice) -> Job[Traced]:
    """A trace of the page of that key; both sides' calls are told as they are made."""

    def work(job: Job[Traced]) -> Traced:
        def progress(side: str, call: int, calls: int) -> None:
            step = "prefill" if call == 0 else f"decode step {call} of {calls - 1}"
            part = {"A": 0, "B": 1}.get(side[:1], 2)
            job.say(f"{side}: {step}", (part + call / calls) / 3)

        return session.trace(request, choice, progress, job.token, job.wait_for)

    return Job("trace", key, work)

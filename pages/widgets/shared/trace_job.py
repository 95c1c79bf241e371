"""A trace of a page as a job. No Streamlit here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsocr_core.outputs.trace_records import TraceSummary
from dsocr_core.records import OcrRequest
from pages.widgets.shared.job import Job

if TYPE_CHECKING:
    from dsocr_core.trace.sides import Way
    from pages.widgets.shared.app_session import AppSession


@dataclass(frozen=True)
class TraceChoice:
    """What the page asks for: two backends and how many decode steps."""

    a: Way = "eager"
    b: Way = "vendor"
    steps: int = 8


Traced = tuple[TraceSummary, str]
"""What was found, and why the history does not have it, or nothing."""


def trace_job(session: AppSession, key: str, request: OcrRequest, choice: TraceChoice) -> Job[Traced]:
    """A trace of the page of that key; both sides' calls are told as they are made."""

    def work(job: Job[Traced]) -> Traced:
        def progress(side: str, call: int, calls: int) -> None:
            step = "prefill" if call == 0 else f"decode step {call} of {calls - 1}"
            part = {"A": 0, "B": 1}.get(side[:1], 2)
            job.say(f"{side}: {step}", (part + call / calls) / 3)

        return session.trace(request, choice, progress, job.token, job.wait_for)

    return Job("trace", key, work)

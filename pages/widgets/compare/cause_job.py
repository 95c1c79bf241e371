"""The search for the cause of a difference as a job. No Streamlit here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dsocr_core.records import OcrRequest, OcrResult
from dsocr_core.settings import Settings
from pages.widgets.shared.job import Job
from pages.widgets.shared.runner import run_key

if TYPE_CHECKING:
    from dsocr_core.why.run import PageAnswer

BUDGET_S = 600.0
"""Seconds of one search."""

Find = Callable[[Settings, OcrRequest, OcrResult, int, "Job[PageAnswer]"], "PageAnswer"]
"""Finds the cause of what B wrote on a page within so many runs of A."""


def search(
    settings: Settings, request: OcrRequest, b: OcrResult, runs: int, job: Job[PageAnswer]
) -> PageAnswer:
    """`dsocr_core.why` on one page, B being a result that is there. Raises DsocrError and Cancelled."""
    # Importing torch takes a second or two.
    from dsocr_core.why.reference import of_result
    from dsocr_core.why.run import why
    from dsocr_core.why.search import Budget

    def progress(words: str, run: int, most: int) -> None:
        job.say(f"Run {run} of at most {most}: {words}", run / most)

    answer = why(
        settings.for_comparison().of_side("a"),
        [(request.image, request.name)],
        lambda path, name: of_result(b),
        Budget(runs, BUDGET_S),
        progress,
        job.token,
        job.wait_for,
    )
    return answer.pages[0]


def about(settings: Settings, request: OcrRequest, b: OcrResult) -> tuple[str, str]:
    """What a search is of: B may have read the page again since."""
    return run_key(settings, request), b.text_raw


def cause_job(
    settings: Settings, request: OcrRequest, b: OcrResult, runs: int, find: Find
) -> Job[PageAnswer]:
    """A search for the cause of what B wrote."""
    return Job("cause", about(settings, request, b), lambda job: find(settings, request, b, runs, job))

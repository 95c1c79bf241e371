"""The report of a review: as JSON, as one self-contained HTML file, as JUnit XML."""

from __future__ import annotations

from typing import Any

from dsocr_core.review.accuracy import Truth
from dsocr_core.review.review import Review

WORST = 20
"""Pages that the HTML report shows with pictures."""


def document(review: Review, truth: Truth | None = None) -> dict[str, Any]:
    """The report as JSON-ready values: both sides, totals, verdict counts, stages, every page, worst first.

    The numbers of the page, of the command line and of every form of the report.
    """
    raise NotImplementedError


def headline(review: Review) -> str:
    """What came out in one line: "ours is 31 % faster than vendor, 3 of 500 pages changed, 1 fails"."""
    raise NotImplementedError


def html_report(review: Review, truth: Truth | None = None, worst: int = WORST) -> str:
    """One HTML file that needs no network and no script; all text of models is escaped."""
    raise NotImplementedError


def junit_report(review: Review) -> str:
    """JUnit XML: a test case a page, failed where parity fails or a reviewer's verdict is "wrong"."""
    raise NotImplementedError

"""Decisions of the reviewers on a page, and as what the page counts in every report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from dsocr_core.review.page import PageReview
from dsocr_core.review.verdicts import VERDICTS, Judgement, VerdictWord

UNREVIEWED, DISAGREEMENT = "not reviewed", "disagreement"
DECISIONS = (UNREVIEWED, *VERDICTS, DISAGREEMENT)
"""Decision of the reviewers on a page."""
REJECTED: VerdictWord = "wrong"


Given = Mapping[str, Mapping[str, Judgement]]
"""Page name -> reviewer -> the row that counts: `Verdicts.current()`."""


def decision(page: str, given: Given) -> str:
    """Return what the reviewers of a page decided: one verdict, a disagreement, or UNREVIEWED."""
    found = {row.verdict for row in given.get(page, {}).values() if row.verdict is not None}
    return DISAGREEMENT if len(found) > 1 else next(iter(found), UNREVIEWED)


def rejected(page: str, given: Given) -> bool:
    """Tell whether any reviewer's verdict on a page is "wrong"; one that others contradict counts, too."""
    return any(row.verdict == REJECTED for row in given.get(page, {}).values())


Outcome = Literal["passed", "failed", "error", "only in one run"]


def outcome(page: PageReview, given: Given) -> Outcome:
    """Say as what a page counts, in every report: it fails parity, or a reviewer's verdict is "wrong"."""
    if page.in_one_run and not rejected(page.name, given):
        return "only in one run"
    if page.fails and page.verdict == "not_comparable":
        return "error"
    return "failed" if page.fails or rejected(page.name, given) else "passed"

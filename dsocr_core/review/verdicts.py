"""What reviewers decided, page by page: append-only rows of the history's annotations.

Every row is a file of its own beside the runs (`annotations/`), so two reviewers never overwrite each
other, on a local path and in an object store alike. An undo is one more row. Of each reviewer the latest row
that was not undone counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd

from dsocr_core.errors import DsocrError
from dsocr_core.history.store import History

VerdictWord = Literal["same", "acceptable", "wrong", "unsure"]
VERDICTS: tuple[VerdictWord, ...] = get_args(VerdictWord)
LABEL_LIMIT, COMMENT_LIMIT, REVIEWER_LIMIT = 100, 4000, 100


class VerdictError(DsocrError):
    """A verdict that cannot be kept, or rows that cannot be imported; names the row and the cause."""


@dataclass(frozen=True)
class Judgement:
    """One row. `undoes` names the row that it takes back; its verdict is then None."""

    id: str
    time: str
    """ISO 8601, UTC."""
    review: str
    """Key of the review, `Review.key`."""
    run_id: str
    """A's run, under which the row is kept."""
    page: str
    reviewer: str
    verdict: VerdictWord | None
    label: str = ""
    """The cause, in the reviewer's words or a `page.Cause`."""
    comment: str = ""
    undoes: str | None = None


class Verdicts:
    """The verdicts of one review. Any thread may call anything; `refresh` takes in what others wrote."""

    def __init__(self, history: History, review: str, run_id: str) -> None:
        """`review` is `Review.key`, `run_id` A's run; `Review.verdicts` makes it."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Take in rows of other reviewers and processes."""
        raise NotImplementedError

    def rows(self) -> tuple[Judgement, ...]:
        """Every row ever written, oldest first, undone ones and undos among them."""
        raise NotImplementedError

    def current(self) -> dict[str, dict[str, Judgement]]:
        """Page -> reviewer -> the row that counts."""
        raise NotImplementedError

    def give(
        self, page: str, verdict: VerdictWord, reviewer: str, label: str = "", comment: str = ""
    ) -> Judgement:
        """Append a verdict. Raises VerdictError for a word there is not, no reviewer, or too long a text."""
        raise NotImplementedError

    def undo(self, reviewer: str, page: str | None = None) -> Judgement | None:
        """Take back this reviewer's last verdict (on that page); what was said before counts again.

        Returns the row that was taken back, None when there is nothing to undo.
        """
        raise NotImplementedError

    def to_json(self) -> str:
        """All rows as a JSON document."""
        raise NotImplementedError

    def to_csv(self) -> str:
        """All rows as CSV; cells that a spreadsheet would take for a formula begin with an apostrophe."""
        raise NotImplementedError

    def take(self, content: str) -> int:
        """Import rows from `to_json` or `to_csv`; returns how many were new. Again, it adds nothing.

        Raises VerdictError naming the row for anything else; then nothing is taken.
        """
        raise NotImplementedError


def verdict_counts(history: History) -> pd.DataFrame:
    """One row a run and review: run_id, review, reviewed (pages), same, acceptable, wrong, unsure, reviewers.

    Counts are of (page, reviewer); `reviewed` is of pages with a word of anybody. For the Runs page.
    """
    raise NotImplementedError

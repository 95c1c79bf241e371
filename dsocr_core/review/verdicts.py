"""Decisions of reviewers, page by page: append-only rows of the history's annotations.

Every row is a file of its own beside the runs, so two reviewers never overwrite each other. An undo is one
more row. Of each reviewer the latest row that was not undone counts.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import pandas as pd

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.spreadsheet import frame_csv
from dsocr_core.review.page import PageReview
from dsocr_core.runs.history import History

VerdictWord = Literal["same", "acceptable", "wrong", "unsure"]
VERDICTS: tuple[VerdictWord, ...] = get_args(VerdictWord)
COMMENT_LIMIT, REVIEWER_LIMIT = 4000, 100

KIND = "verdict"


class VerdictError(DsocrError):
    """A verdict that cannot be recorded; says why."""


@dataclass(frozen=True)
class Judgement:
    """One row. `undoes` names the row that it takes back; its verdict is then None."""

    id: str
    time: str  # ISO 8601, UTC
    review: str  # key of the review, `Review.key`
    run_id: str  # A's run, under which the row is recorded
    page: str
    reviewer: str
    verdict: VerdictWord | None
    comment: str = ""
    undoes: str | None = None


_COLUMNS = tuple(item.name for item in fields(Judgement))
_LIMITS = {
    "id": 64, "time": 40, "review": 500, "run_id": 100, "page": 4096, "reviewer": REVIEWER_LIMIT,
    "comment": COMMENT_LIMIT, "undoes": 64,
}  # fmt: skip
_NEEDED = ("id", "time", "review", "run_id", "page", "reviewer")


class Verdicts:
    """The verdicts of one review. Thread-safe; `History.refresh` takes in what others wrote."""

    def __init__(self, history: History, review: str, run_id: str) -> None:
        """`review` is `Review.key`, `run_id` A's run; `Review.verdicts` makes it."""
        self._history, self._review, self._run_id = history, review, run_id

    def rows(self) -> tuple[Judgement, ...]:
        """Every row ever written, oldest first, undone ones and undos among them."""
        found: dict[str, Judgement] = {}
        frame, _ = self._history.query("verdicts", run_id=self._run_id)
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
            if row["review"] == self._review and row["id"] not in found:
                try:
                    found[row["id"]] = _judgement({name: row[name] for name in _COLUMNS})
                except VerdictError:  # a foreign row does not count
                    continue
        return tuple(found.values())

    def comments(self) -> dict[str, list[Judgement]]:
        """Page -> the comments without a verdict that were not taken back, oldest first.

        Earlier ones were pinned to regions of the page, which are not shown any more.
        """
        found: dict[str, list[Judgement]] = {}
        for row in self._that_count(comments=True):
            found.setdefault(row.page, []).append(row)
        return found

    def current(self) -> dict[str, dict[str, Judgement]]:
        """Page -> reviewer -> the row that counts."""
        given: dict[str, dict[str, Judgement]] = {}
        for row in self._that_count():
            given.setdefault(row.page, {})[row.reviewer] = row
        return given

    def give(self, page: str, verdict: VerdictWord, reviewer: str, comment: str = "") -> Judgement:
        """Append a verdict. Raises VerdictError for a word there is not, no reviewer, or too long a text."""
        return self._append(page, reviewer, verdict=verdict, comment=comment.strip())

    def undo(self, reviewer: str) -> Judgement | None:
        """Take back this reviewer's last verdict; the one before counts again.

        Returns the row that was taken back, None when there is nothing to undo.
        """
        name = " ".join(reviewer.split())
        own = [row for row in self._that_count() if row.reviewer == name]
        if own:
            self._append(own[-1].page, name, verdict=None, undoes=own[-1].id)
        return own[-1] if own else None

    def to_csv(self) -> str:
        """All rows as CSV; cells that a spreadsheet would take for a formula begin with an apostrophe."""
        return frame_csv(pd.DataFrame([vars(row) for row in self.rows()], columns=list(_COLUMNS)))

    def _append(self, page: str, reviewer: str, **values: Any) -> Judgement:
        names = {"review": self._review, "run_id": self._run_id, "page": page}
        row = _judgement(
            {"id": secrets.token_hex(12), "time": datetime.now(UTC).isoformat(), **names, **values}
            | {"reviewer": " ".join(reviewer.split())}
        )
        columns = ("id", "time", "review", "verdict", "comment", "undoes")
        value = json.dumps({name: getattr(row, name) for name in columns}, ensure_ascii=False)
        self._history.annotate(self._run_id, KIND, [(row.page, row.reviewer, value)])
        return row

    def _that_count(self, comments: bool = False) -> list[Judgement]:
        """The verdicts, or the comments, that are not undone, oldest first. Only the reviewer can undo."""
        every = self.rows()
        undone = {(row.reviewer, row.undoes) for row in every if row.undoes}
        found = [row for row in every if not row.undoes and (row.verdict is None) == comments]
        return [row for row in found if (row.reviewer, row.id) not in undone]


def _judgement(values: dict[str, Any]) -> Judgement:
    """A row from values of unknown origin. Raises VerdictError."""
    for name, limit in _LIMITS.items():
        value = values.get(name)
        if not isinstance(value, str | None):
            raise VerdictError(f"{name} is {type(value).__name__}, not text")
        if value is not None and len(value) > limit:
            raise VerdictError(f"{name} has {len(value):,} characters: at most {limit:,}")
        if name in _NEEDED and not value:
            raise VerdictError("the reviewer has no name" if name == "reviewer" else f"there is no {name}")
    verdict = values.get("verdict")
    if verdict not in VERDICTS and not (verdict is None and (values.get("undoes") or values.get("comment"))):
        raise VerdictError(f"verdict {str(verdict)[:40]!r} is none of {', '.join(VERDICTS)}")
    moment = None
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(values["time"])
    if moment is None or moment.tzinfo is None:
        raise VerdictError(f"time {values['time']!r} is not ISO 8601 with a zone")
    # One form for all, so that the order of the texts is that of the times.
    time = moment.astimezone(UTC).isoformat(timespec="microseconds")
    texts = {"comment": values.get("comment") or "", "undoes": values.get("undoes") or None}
    return Judgement(**values | texts | {"time": time})


# --- as what a page counts, in every report ---------------------------------------------------------

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

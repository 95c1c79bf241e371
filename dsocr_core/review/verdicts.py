"""Decisions of reviewers, page by page: append-only rows of the history's annotations.

Every row is a file of its own beside the runs (`annotations/`), so two reviewers never overwrite each
other. An undo is one more row. Of each reviewer the latest row
that was not undone counts.
"""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import pandas as pd

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.spreadsheet import csv_cell
from dsocr_core.runs.history import History
from dsocr_core.runs.results import rows

VerdictWord = Literal["same", "acceptable", "wrong", "unsure"]
VERDICTS: tuple[VerdictWord, ...] = get_args(VerdictWord)
LABEL_LIMIT, COMMENT_LIMIT, REVIEWER_LIMIT, PAGE_LIMIT = 100, 4000, 100, 4096

KIND = "verdict"


class VerdictError(DsocrError):
    """A verdict that cannot be recorded; says why."""


@dataclass(frozen=True)
class Judgement:
    """One row. `undoes` names the row that it takes back; its verdict is then None."""

    id: str
    time: str
    """ISO 8601, UTC."""
    review: str
    """Key of the review, `Review.key`."""
    run_id: str
    """A's run, under which the row is recorded."""
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
        self._history, self._review, self._run_id = history, review, run_id

    def refresh(self) -> None:
        """Take in rows of other reviewers and processes."""
        self._history.refresh()

    def rows(self) -> tuple[Judgement, ...]:
        """Every row ever written, oldest first, undone ones and undos among them."""
        found: dict[str, Judgement] = {}
        for row in rows(self._history.query("verdicts", run_id=self._run_id)[0]):
            if row["review"] == self._review and row["id"] not in found:
                values = {item.name: row[item.name] for item in fields(Judgement)}
                try:
                    found[row["id"]] = _judgement(values)
                except VerdictError:  # a foreign row does not count
                    continue
        return tuple(found.values())

    def comments(self) -> dict[str, list[Judgement]]:
        """Page -> the comments without a verdict that were not taken back, oldest first.

        Earlier ones were pinned to regions of the page, which are not shown any more.
        """
        found: dict[str, list[Judgement]] = {}
        for row in _standing(self.rows(), comments=True):
            found.setdefault(row.page, []).append(row)
        return found

    def current(self) -> dict[str, dict[str, Judgement]]:
        """Page -> reviewer -> the row that counts."""
        given: dict[str, dict[str, Judgement]] = {}
        for row in _standing(self.rows()):
            given.setdefault(row.page, {})[row.reviewer] = row
        return given

    def give(
        self, page: str, verdict: VerdictWord, reviewer: str, label: str = "", comment: str = ""
    ) -> Judgement:
        """Append a verdict. Raises VerdictError for a word there is not, no reviewer, or too long a text."""
        return self._append(page, verdict, reviewer, label, comment)

    def undo(self, reviewer: str, page: str | None = None) -> Judgement | None:
        """Take back this reviewer's last verdict (on that page); the one before counts again.

        Returns the row that was taken back, None when there is nothing to undo.
        """
        name = " ".join(reviewer.split())
        own = [row for row in _standing(self.rows()) if row.reviewer == name and page in (None, row.page)]
        if not own:
            return None
        self._append(own[-1].page, None, name, undoes=own[-1].id)
        return own[-1]

    def _append(
        self,
        page: str,
        verdict: VerdictWord | None,
        reviewer: str,
        label: str = "",
        comment: str = "",
        undoes: str | None = None,
    ) -> Judgement:
        row = _judgement(
            {
                "id": secrets.token_hex(12),
                "time": datetime.now(UTC).isoformat(timespec="microseconds"),
                "review": self._review,
                "run_id": self._run_id,
                "page": page,
                "reviewer": " ".join(reviewer.split()),
                "verdict": verdict,
                "label": label.strip(),
                "comment": comment.strip(),
                "undoes": undoes,
            }
        )
        self._write([row])
        return row

    def _write(self, rows: Iterable[Judgement]) -> None:
        self._history.annotate_all(
            self._run_id, KIND, [(row.page, row.reviewer, _value(row)) for row in rows]
        )

    # --- out -----------------------------------------------------------------------------

    def to_csv(self) -> str:
        """All rows as CSV; cells that a spreadsheet would take for a formula begin with an apostrophe."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in self.rows():
            writer.writerow([csv_cell(getattr(row, name)) for name in _COLUMNS])
        return out.getvalue()


_COLUMNS = tuple(item.name for item in fields(Judgement))
_LIMITS = {
    "id": 64, "time": 40, "review": 500, "run_id": 100, "page": PAGE_LIMIT, "reviewer": REVIEWER_LIMIT,
    "label": LABEL_LIMIT, "comment": COMMENT_LIMIT, "undoes": 64,
}  # fmt: skip
_NEEDED = ("id", "time", "review", "run_id", "page", "reviewer")


def verdict_counts(history: History) -> pd.DataFrame:
    """One row a run and review: run_id, review, reviewed (pages), same, acceptable, wrong, unsure, reviewers.

    Counts are of (page, reviewer); `reviewed` is of pages with a word of anybody. For the Runs page.
    """
    return history.query("verdict_counts")[0]


def _standing(rows: Sequence[Judgement], comments: bool = False) -> list[Judgement]:
    """List the verdicts, or the comments, that are not undone, oldest first. Only the reviewer can undo."""
    undone = {(row.reviewer, row.undoes) for row in rows if row.undoes}
    kind = [row for row in rows if not row.undoes and (row.verdict is None) == comments]
    return [row for row in kind if (row.reviewer, row.id) not in undone]


def _judgement(values: dict[str, Any]) -> Judgement:
    """A row from values of unknown origin. Raises VerdictError."""
    texts = {}
    for name, limit in _LIMITS.items():
        value = values.get(name)
        if not isinstance(value, str | None):
            raise VerdictError(f"{name} is {type(value).__name__}, not text")
        if value is not None and len(value) > limit:
            raise VerdictError(f"{name} has {len(value):,} characters: at most {limit:,}")
        if name in _NEEDED and not value:
            raise VerdictError("the reviewer has no name" if name == "reviewer" else f"there is no {name}")
        texts[name] = value
    verdict = values.get("verdict")
    if verdict not in VERDICTS and not (verdict is None and (texts["undoes"] or texts["comment"])):
        raise VerdictError(f"verdict {str(verdict)[:40]!r} is none of {', '.join(VERDICTS)}")
    try:
        moment = datetime.fromisoformat(str(texts["time"]))
    except ValueError:
        raise VerdictError(f"time {texts['time']!r} is not ISO 8601") from None
    if moment.tzinfo is None:
        raise VerdictError(f"time {texts['time']!r} has no zone")
    # One form for all, so that the order of the texts is that of the times.
    texts["time"] = moment.astimezone(UTC).isoformat(timespec="microseconds")
    optional = {name: texts.pop(name) or "" for name in ("label", "comment")}
    needed = {name: str(texts[name]) for name in _NEEDED}
    return Judgement(**needed, **optional, verdict=verdict, undoes=texts["undoes"] or None)


def _value(row: Judgement) -> str:
    """Make what an annotation holds beside page and reviewer."""
    names = ("id", "time", "review", "verdict", "label", "comment", "undoes")
    return json.dumps({name: getattr(row, name) for name in names}, ensure_ascii=False)

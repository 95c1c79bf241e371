"""The queue of a review under its chips, the page shown, and what the viewer's keys do: turn, judge, undo."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity_records import SETTINGS, Kind
from dsocr_core.review.verdicts import (
    DISAGREEMENT,
    REVIEWER_LIMIT,
    UNREVIEWED,
    VERDICTS,
    Given,
    Judgement,
    VerdictWord,
    decision,
)
from pages.widgets.review import address
from pages.widgets.review.address import STATE, value
from pages.widgets.shared import resources

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

NAME_FIRST = "Enter your name first; it is saved with your verdict."
SAME, ONLY_A, ONLY_B = "same text", "only in A", "only in B"
_GROUPS: dict[str, frozenset[Kind]] = {
    "not compared": frozenset({"failed", "pages"}),
    "ended differently": frozenset({"truncated", "ended"}),
    "text": frozenset({"text", "lines", "table"}),
    "boxes": frozenset({"missing", "extra", "relabelled", "moved", "order"}),
}
_OUTPUTS = (*_GROUPS, "spelling", SAME, ONLY_A, ONLY_B)
_DECISIONS = (UNREVIEWED, *VERDICTS, DISAGREEMENT)


def group_of(page: PageReview) -> str:
    """The gravest group of differences of a page; SAME where only settings differ."""
    if page.in_one_run:
        return ONLY_A if page.names[1] is None else ONLY_B
    if page.report is None:
        return "not compared"
    kinds = {*page.kinds, *(["text"] if page.text_differs else [])} - SETTINGS
    return next((name for name, of in _GROUPS.items() if kinds & of), "spelling" if kinds else SAME)


@dataclass(frozen=True)
class Queue:
    """Pages of a review under the chosen chips. Made again whenever the page is drawn or moves on."""

    review: Review
    given: Given

    @cached_property
    def pages(self) -> list[PageReview]:
        """The pages that pass the chips, worst first; those of one run only where a chip asks for them."""
        wanted = {*value("show")}
        outputs, decisions = wanted & {*_OUTPUTS}, wanted & {*_DECISIONS}
        return [
            page
            for page in self.review.pages
            if (group_of(page) in outputs if outputs else not page.in_one_run)
            and (not decisions or decision(page.name, self.given) in decisions)
        ]

    @property
    def chips(self) -> dict[str, int]:
        """Every chip with its number of pages; chips without a page are left out."""
        counts = Counter(group_of(page) for page in self.review.pages)
        counts.update(decision(page.name, self.given) for page in self.review.pages if not page.in_one_run)
        return {name: counts[name] for name in (*_OUTPUTS, *_DECISIONS) if counts[name]}

    @cached_property
    def page(self) -> PageReview | None:
        """The page shown, which may have left the queue. None: the grid."""
        return next((page for page in self.review.pages if page.name == value("page")), None)

    @cached_property
    def position(self) -> int:
        """The place of the page shown in the queue; -1 when it is not there."""
        return next((index for index, page in enumerate(self.pages) if page is self.page), -1)

    def neighbour(self, step: int) -> PageReview | None:
        """The page that many steps on in the queue, None past its ends."""
        index = self.position + step
        if self.position < 0 and self.page:  # between the neighbours that it had in the whole review
            order = {page.name: number for number, page in enumerate(self.review.pages)}
            index = sum(order[page.name] < order[self.page.name] for page in self.pages) + step - (step > 0)
        return self.pages[index] if 0 <= index < len(self.pages) else None

    def own(self, page: str) -> Judgement | None:
        """Find what counts of this reviewer on a page."""
        return self.given.get(page, {}).get(address.reviewer())


def queue_of(review: Review) -> Queue:
    return Queue(review, review.verdicts.current())


# --- turning pages and judging --------------------------------------------------------------------


def take_actions() -> None:
    """Do what waited for a name, and what was done in the viewer since the last time.

    Each action with the page that was shown then, before anything is drawn. Streamlit may stop the script at
    any look into the session when more comes in; an action is then done by the next run: only what was done
    is marked as taken.
    """
    _give_pending()
    for number, act, subject in STATE.new_actions("review viewer"):
        if act == "named":
            STATE.put("reviewer", subject[:REVIEWER_LIMIT])
            STATE.put("taken", number)
            _give_pending()
        else:
            act_on(act, subject, number)


def _give_pending() -> None:
    """Give the verdict that waited for a name, once there is one."""
    if (pending := value("pending")) and address.reviewer():
        act_on(*pending)


def act_on(act: str, subject: str, number: int = 0) -> None:
    """Do `act` ("next", "previous", "undo", a verdict) with `subject` shown; what went wrong is noted."""
    done: dict[str, Any] = {
        "taken": max(number, value("taken")), "problem": "", "notice": "", "pending": ()
    }  # fmt: skip
    try:
        review = resources.review(value("review"))
        if act in ("next", "previous"):
            done |= _turn(queue_of(review), 1 if act == "next" else -1)
        elif act == "undo":
            done |= _undo(review)
        elif act in VERDICTS and not address.reviewer():
            asked = time.time_ns() // 1_000_000
            done |= {"problem": NAME_FIRST, "pending": (act, subject), "asked": asked}
        elif act in VERDICTS:
            judge(review, subject, act)
    except DsocrError as error:
        done["problem"] = str(error)
    STATE.values.update(done)


def _turn(queue: Queue, step: int) -> dict[str, Any]:
    """The next page of the prompt that the page shown was read with, else the next of the queue."""
    count = max((len(side.sizes) for side in queue.page.sides), default=1) if queue.page else 1
    sheet = STATE.sheet(count) + step
    if 0 <= sheet < count:
        return {"box": "", "sheet": str(sheet + 1)}
    page = queue.neighbour(step)
    return {"page": page.name, "box": "", "sheet": ""} if page is not None else {}


def judge(review: Review, name: str, verdict: VerdictWord) -> None:
    """Give a verdict with the comment beside it. Raises DsocrError."""
    review.page(name)
    comment = st.session_state.get(comment_key(name))
    review.verdicts.give(name, verdict, address.reviewer(), comment or "")


def comment_key(name: str) -> str:
    """The session's key of the comment on a page."""
    return f"review comment {name}"


def _undo(review: Review) -> dict[str, Any]:
    """Take back this reviewer's last verdict and show its page."""
    row = review.verdicts.undo(address.reviewer()) if address.reviewer() else None
    if row is None:
        return {"problem": "You have no verdict to undo."}
    notice = f"Undid “{row.verdict}” on {row.page[:80]}."
    return {"notice": notice, "page": row.page, "box": "", "sheet": ""}

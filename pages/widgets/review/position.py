"""Position of a reviewer: the open review, its queue under the filters, the page shown, how to move on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.review.document import one_run_words
from dsocr_core.review.queue import Given, select
from dsocr_core.review.verdicts import LABEL_LIMIT, REVIEWER_LIMIT, VERDICTS, Judgement, VerdictWord
from pages.widgets.review import address
from pages.widgets.review.address import value
from pages.widgets.shared import resources

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

NAME_FIRST = "Type your name: what you say is recorded under it."
_NEWS_S = 5
"""Age that other people's verdicts may have: taking them in lists a folder."""


@dataclass(frozen=True)
class Position:
    """Made afresh whenever the page is drawn or moved on."""

    review: Review
    given: Given

    @cached_property
    def queue(self) -> list[PageReview]:
        """The pages that pass the filters, worst first; those of one run only where these are asked for."""
        return compared(select(self.review.pages, address.filters(), self.given))

    @cached_property
    def page(self) -> PageReview | None:
        """The page shown; it may have left the queue, by its new verdict say."""
        if name := value("page"):
            return next((page for page in self.review.pages if page.name == name), None)
        return self.queue[0] if self.queue else None

    @cached_property
    def comments(self) -> list[Judgement]:
        """Comments without a verdict on the page shown."""
        return self.review.verdicts.comments().get(self.page.name, []) if self.page else []

    @cached_property
    def position(self) -> int:
        """Find the page shown in the queue; -1 when it is not there."""
        return next((index for index, page in enumerate(self.queue) if page is self.page), -1)

    def beside(self, step: int) -> PageReview | None:
        """The page that many steps on in the queue, None past its ends."""
        index = self.position + step
        if self.position < 0:  # between the neighbours that it had in the whole review
            order = {page.name: number for number, page in enumerate(self.review.pages)}
            here = order[self.page.name] if self.page else 0
            before = sum(order[page.name] < here for page in self.queue)
            index = before + step - (step > 0)
        return self.queue[index] if 0 <= index < len(self.queue) else None

    def own(self, page: str) -> Judgement | None:
        """Find what counts of this reviewer on a page."""
        return self.given.get(page, {}).get(address.reviewer())


def compared(pages: list[PageReview]) -> list[PageReview]:
    """The pages that both runs have, unless the filters ask for the others."""
    if "absent" in value("kinds"):
        return pages
    return [page for page in pages if not page.in_one_run]


def find(review: Review) -> Position:
    """The position as the session has it, with the newest verdicts of others. Raises DsocrError."""
    now = time.monotonic()
    if now - st.session_state.get("review news", 0.0) > _NEWS_S:
        review.verdicts.refresh()
        st.session_state["review news"] = now
    return Position(review, review.verdicts.current())


# --- moving on and judging ------------------------------------------------------------------------


def take_actions() -> None:
    """Do what waited for a name, and what was done in the viewer since the last time, each with the page that
    was shown then.

    Before anything is drawn. Streamlit may stop the script at any look into the session when more comes in;
    an action is then done by the next run: only what was done is marked as taken.
    """
    _give_pending()
    state: Any = st.session_state.get("review viewer")
    actions = state.get("actions") if state else None
    for action in actions if isinstance(actions, list) else []:
        number, *of_act = (action.get(name) for name in ("n", "act", "subject"))
        if isinstance(number, int) and number > address.values()["taken"]:
            act, subject = (str(value or "") for value in of_act)
            if act == "named":
                address.put("reviewer", subject[:REVIEWER_LIMIT])
                address.put("taken", number)
                _give_pending()
            else:
                act_on(act, subject, number)


def _give_pending() -> None:
    """Give the verdict that waited for a name, once there is one."""
    if (pending := address.values()["pending"]) and address.reviewer():
        act_on(*pending)


def act_on(act: str, subject: str, number: int = 0) -> None:
    """Do `act` ("next", "previous", "undo", a verdict) with `subject` shown; what went wrong is noted."""
    values = address.values()
    done: dict[str, Any] = {
        "taken": max(number, values["taken"]),
        "problem": "",
        "notice": "",
        "pending": None,
    }
    try:
        review = resources.review(value("review"))
        here = Position(review, review.verdicts.current())
        if act in ("next", "previous"):
            done |= _turn(here, 1 if act == "next" else -1)
        elif act == "undo":
            done |= _undo(review)
        elif act in VERDICTS and not address.reviewer():
            done |= {"problem": NAME_FIRST, "pending": (act, subject),
                     "asked": time.time_ns() // 1_000_000}  # fmt: skip
        elif act in VERDICTS:
            done |= _judge(here, subject, act)
    except DsocrError as error:
        done["problem"] = str(error)
    values.update(done)


def _turn(here: Position, step: int) -> dict[str, Any]:
    """The next page of the prompt that the page shown was read with, else the next of the queue."""
    count = max((len(side.sizes) for side in here.page.sides), default=1) if here.page else 1
    sheet = address.sheet(count) + step
    if 0 <= sheet < count:
        return {"box": "", "sheet": str(sheet + 1)}
    return _to(here.beside(step))


def _to(page: PageReview | None) -> dict[str, Any]:
    return {"page": page.name, "box": "", "sheet": ""} if page is not None else {}


def _judge(here: Position, name: str, verdict: VerdictWord) -> dict[str, Any]:
    """Give a verdict with the cause and comment that stand beside it. Raises DsocrError."""
    here.review.page(name)
    label, comment = typed_words(name) or words_for(name, here.own(name))
    onward = _to(here.beside(1)) if value("onward") and name == value("page") else {}
    drafts = address.values()["drafts"]
    here.review.verdicts.give(name, verdict, address.reviewer(), label, comment)
    drafts.pop(name, None)
    return onward


def _undo(review: Review) -> dict[str, Any]:
    """Take back this reviewer's last verdict and show its page."""
    reviewer, drafts = address.reviewer(), address.values()["drafts"]
    row = review.verdicts.undo(reviewer) if reviewer else None
    if row is None:
        return {"problem": "There is no verdict of yours to take back."}
    drafts[row.page] = (row.label, row.comment)
    return {
        "notice": f"Took back “{row.verdict}” on {row.page[:80]}.",
        "page": row.page,
        "box": "",
        "sheet": "",
    }


def typed_words(name: str) -> tuple[str, str] | None:
    """Cause and comment as they stand in the fields, when these are a page's."""
    filled = st.session_state.get("review filled")
    if not filled or filled[0] != name:
        return None
    cause, comment = (st.session_state.get(f"review {field}") or "" for field in ("cause", "words"))
    return cause[:LABEL_LIMIT], comment


def words_for(name: str, own: Judgement | None) -> tuple[str, str]:
    """Cause and comment of a page: what was typed and is not yet recorded, else what is recorded."""
    found: tuple[str, str] | None = address.values()["drafts"].get(name)
    return found or ((own.label, own.comment) if own else ("", ""))


def reviewed_words(here: Position) -> str:
    """Count pages: "3 in both, 0 reviewed, 11 only in A"."""
    pages = [page for page in here.review.pages if not page.in_one_run]
    reviewed = sum(page.name in here.given for page in pages)
    alone = one_run_words(here.review.pages, noun=False)
    return f"{len(pages):,} in both, {reviewed:,} reviewed{f', {alone}' if alone else ''}"

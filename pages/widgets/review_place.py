"""Where a reviewer is: the open review, its queue under the filters, the page in sight, how to move on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.review.queue import Given, select
from dsocr_core.review.verdicts import VERDICTS, Judgement, VerdictWord
from pages.widgets import resources
from pages.widgets import review_address as address
from pages.widgets.formats import plural
from pages.widgets.review_address import value

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

NAME_FIRST = "Type your name first (key r): a verdict is kept under it."
_NEWS_S = 5
"""How old other people's verdicts may be: taking them in lists a folder."""


@dataclass(frozen=True)
class Place:
    """Made afresh whenever the page is drawn or moved on."""

    review: Review
    given: Given

    @cached_property
    def queue(self) -> list[PageReview]:
        """The pages that pass the filters, worst first."""
        return select(self.review.pages, address.filters(), self.given)

    @cached_property
    def page(self) -> PageReview | None:
        """The page in sight; it may have left the queue, by its new verdict say."""
        name = value("page")
        if name:
            try:
                return self.review.page(name)
            except DsocrError:  # a link to a page that is not there
                pass
        return self.queue[0] if self.queue else None

    @cached_property
    def position(self) -> int:
        """Of the page in sight in the queue; -1 when it is not there."""
        return next((place for place, page in enumerate(self.queue) if page is self.page), -1)

    def beside(self, step: int) -> PageReview | None:
        """The page that many steps on in the queue, None past its ends."""
        place = self.position + step
        if self.position < 0:  # between the neighbours that it had in the whole review
            order = {page.name: number for number, page in enumerate(self.review.pages)}
            here = order[self.page.name] if self.page else 0
            before = sum(order[page.name] < here for page in self.queue)
            place = before + step - (step > 0)
        return self.queue[place] if 0 <= place < len(self.queue) else None

    def own(self, page: str) -> Judgement | None:
        """What counts of this reviewer on a page."""
        return self.given.get(page, {}).get(address.reviewer())


def find(review: Review) -> Place:
    """The place as the session has it, with what others said a moment ago. Raises DsocrError."""
    now = time.monotonic()
    if now - st.session_state.get("review news", 0.0) > _NEWS_S:
        review.verdicts.refresh()
        st.session_state["review news"] = now
    return Place(review, review.verdicts.current())


# --- callbacks ------------------------------------------------------------------------------------


def take_actions() -> None:
    """What was done in the viewer since the last time, each about the page that was in sight then."""
    actions: Any = st.session_state["review viewer"].get("actions")
    for action in actions if isinstance(actions, list) else []:
        number, act, subject = (action.get(name) for name in ("n", "act", "subject"))
        if isinstance(number, int) and number > taken():
            st.session_state["review taken"] = number
            act_on(str(act), str(subject))


def taken() -> int:
    """Number of the last action of the viewer that was done."""
    return int(st.session_state.get("review taken", 0))


def act_on(act: str, subject: str) -> None:
    """Do `act` ("next", "previous", "undo", a verdict) with `subject` in sight; tells what went wrong."""
    st.session_state.pop("review told off", None)
    try:
        review = resources.review(value("review"))
        if act in ("next", "previous"):
            step(review, 1 if act == "next" else -1)
        elif act == "undo":
            _undo(review)
        elif act in VERDICTS:
            judge(review, subject, act)
    except DsocrError as error:
        st.session_state["review told off"] = str(error)


def step(review: Review, by: int) -> None:
    place = Place(review, review.verdicts.current())
    if (page := place.beside(by)) is not None:
        address.show_page(page.name)


def judge(review: Review, name: str, verdict: VerdictWord) -> None:
    """Give a verdict with the cause and comment that stand beside it. Raises DsocrError."""
    if not address.reviewer():
        st.session_state["review told off"] = NAME_FIRST
        return
    review.page(name)
    label, comment = words_for(name, Place(review, review.verdicts.current()).own(name))
    review.verdicts.give(name, verdict, address.reviewer(), label, comment)
    drafts().pop(name, None)
    st.session_state["review said"] = ""
    if value("onward") and name == value("page"):
        step(review, 1)


def _undo(review: Review) -> None:
    """Take back this reviewer's last verdict and show its page."""
    row = review.verdicts.undo(address.reviewer()) if address.reviewer() else None
    if row is None:
        st.session_state["review told off"] = "There is no verdict of yours to take back."
        return
    drafts()[row.page] = (row.label, row.comment)
    st.session_state["review said"] = f"Took back “{row.verdict}” on {row.page[:80]}."
    address.show_page(row.page)


def drafts() -> dict[str, tuple[str, str]]:
    """Page -> cause and comment that were typed and not yet kept with a verdict."""
    found: dict[str, tuple[str, str]] = st.session_state.setdefault("review drafts", {})
    return found


def words_for(name: str, own: Judgement | None) -> tuple[str, str]:
    """Cause and comment of a page: what was typed, else what was kept."""
    return drafts().get(name) or ((own.label, own.comment) if own else ("", ""))


def reviewed_words(place: Place) -> str:
    return f"{len(place.given):,} of {plural(len(place.review.pages), 'page')} reviewed"

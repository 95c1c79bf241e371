"""A reviewer's verdict on the page shown: four buttons, a comment, the name; the verdicts of others."""

from __future__ import annotations

from html import escape

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import moment
from dsocr_core.review.page import PageReview
from dsocr_core.review.verdicts import (
    COMMENT_LIMIT,
    DISAGREEMENT,
    REVIEWER_LIMIT,
    VERDICTS,
    Judgement,
    decision,
)
from pages.widgets.review import address
from pages.widgets.review import queue as queues
from pages.widgets.review.address import STATE, value
from pages.widgets.review.queue import Queue, comment_key
from pages.widgets.shared import resources
from pages.widgets.shared.messages import show_error
from pages.widgets.streamlit_mends import rerun_page

KEYS = {"same": "s", "acceptable": "a", "wrong": "w", "unsure": "u"}
FIELDS = {"r": ("review-name", "your name"), "m": ("review-said", "the comment")}
"""Keys that lead into a field: where it is on the page, and what it is."""
UNDO = "z"
_NEWS_S = 4


def draw(queue: Queue, page: PageReview) -> None:
    own, field = queue.own(page.name), comment_key(page.name)
    if field not in st.session_state:
        st.session_state[field] = own.comment if own else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="review verdict"):
        for verdict in VERDICTS:
            st.button(
                f"{verdict.capitalize()} `{KEYS[verdict]}`", key=f"review say {verdict}",
                type="primary" if own and own.verdict == verdict else "secondary",
                on_click=queues.act_on, args=(verdict, page.name),
            )  # fmt: skip
        with st.container(key="review said", width="stretch"):
            st.text_input(
                "Comment", key=field, persist_state="session", placeholder="comment (m)",
                max_chars=COMMENT_LIMIT, on_change=_comment, args=(page.name,),
                label_visibility="collapsed",
            )  # fmt: skip
        st.button(
            "", icon=":material/undo:", key="review undo", help="Undo your last verdict (z)",
            on_click=queues.act_on, args=("undo", page.name), disabled=not _any_own(queue),
        )  # fmt: skip
        with st.container(key="review name", width=140):
            st.text_input(
                "Reviewer", **STATE.bound("reviewer"), placeholder="your name (r)", max_chars=REVIEWER_LIMIT,
                label_visibility="collapsed", on_change=_named,
            )  # fmt: skip
    if problem := STATE.values["problem"]:
        show_error(problem)
    st.html(verdicts_html(queue, page))
    _news(queue)


def _named() -> None:
    """A callback: what waited for a name is done by the run that follows."""
    STATE.put("problem", "")


def _comment(name: str) -> None:
    """A callback: a comment goes with the verdict that was given, or waits for it."""
    values = STATE.values
    values["problem"] = ""
    try:
        review = resources.review(value("review"))
        own = queues.queue_of(review).own(name)
        if own is not None and own.verdict is not None and own.comment != st.session_state[comment_key(name)]:
            queues.judge(review, name, own.verdict)
    except DsocrError as error:
        values["problem"] = str(error)


def _any_own(queue: Queue) -> bool:
    return any(address.reviewer() in rows for rows in queue.given.values())


def _news(queue: Queue) -> None:
    """Draw the page again when another reviewer has written something."""
    drawn = len(queue.review.verdicts.rows())

    def look() -> None:
        queue.review.verdicts.refresh()
        if len(queue.review.verdicts.rows()) != drawn:
            rerun_page()

    st.fragment(look, run_every=_NEWS_S)()


def verdicts_html(queue: Queue, page: PageReview) -> str:
    """All verdicts on the page, comments without one, and what was just undone; escaped."""
    rows = sorted(queue.given.get(page.name, {}).values(), key=lambda row: row.time)
    chips = [_chip(row, " · ".join(filter(None, (row.verdict, row.label, row.comment)))) for row in rows]
    if decision(page.name, queue.given) == DISAGREEMENT:
        chips.append(f"<span class='dsocr-review'><b>{DISAGREEMENT}</b></span>")
    chips += [_chip(row, row.comment) for row in queue.review.verdicts.comments().get(page.name, [])]
    if notice := STATE.values["notice"]:
        chips.append(f"<span class='dsocr-review'>{escape(notice)}</span>")
    return f"<div class='dsocr-line'>{''.join(chips) or '&nbsp;'}</div>"


def _chip(row: Judgement, said: str) -> str:
    who = "you" if row.reviewer == address.reviewer() else row.reviewer
    title = escape(f"{moment(row.time)} {row.reviewer}: {said}", quote=True)
    return f"<span class='dsocr-review' title='{title}'><b>{escape(who)}</b>: {escape(said)}</span>"

"""A reviewer's verdict on the page shown: four buttons, the cause, a comment; the verdicts of others."""

from __future__ import annotations

from html import escape
from typing import get_args

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import moment
from dsocr_core.reading.parity_records import CauseName
from dsocr_core.review.page import PageReview
from dsocr_core.review.queue import DISAGREEMENT, decision
from dsocr_core.review.verdicts import COMMENT_LIMIT, REVIEWER_LIMIT, VERDICTS, Judgement
from pages.widgets.review import address, position
from pages.widgets.review.address import key, value
from pages.widgets.review.position import Position
from pages.widgets.shared import resources
from pages.widgets.shared.messages import show_error

KEYS = {"same": "s", "acceptable": "a", "wrong": "w", "unsure": "u"}
FIELDS = {
    "r": ("review-reviewer", "your name"),
    "c": ("review-label", "the cause"),
    "m": ("review-comment", "the comment"),
}
"""Keys that lead into a field: where it is on the page, and what it is."""
UNDO = "z"


def draw(here: Position, page: PageReview) -> None:
    own = here.own(page.name)
    _fill(page.name, own)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="review verdict"):
        for verdict in VERDICTS:
            st.button(
                f"{verdict.capitalize()} `{KEYS[verdict]}`", key=f"review say {verdict}",
                type="primary" if own and own.verdict == verdict else "secondary",
                on_click=position.act_on, args=(verdict, page.name),
            )  # fmt: skip
        with st.container(key="review label", width=170):
            st.selectbox(
                "Cause", _labels(here, page), key="review cause", index=None, placeholder="cause (c)",
                accept_new_options=True, on_change=_keep_words, label_visibility="collapsed",
            )  # fmt: skip
        with st.container(key="review comment", width="stretch"):
            st.text_input(
                "Comment", key="review words", placeholder="comment (m)", max_chars=COMMENT_LIMIT,
                on_change=_keep_words, label_visibility="collapsed",
            )  # fmt: skip
        st.button(
            "", icon=":material/undo:", key="review undo", help="Take back your last verdict (z)",
            on_click=position.act_on, args=("undo", page.name), disabled=not _any_own(here),
        )  # fmt: skip
        with st.container(key="review reviewer box", width=140):
            st.text_input(
                "Reviewer", key=key("reviewer"), placeholder="your name (r)", max_chars=REVIEWER_LIMIT,
                label_visibility="collapsed", on_change=_named,
            )  # fmt: skip
    if problem := address.values()["problem"]:
        show_error(problem)


def _named() -> None:
    """A callback: what waited for a name is done by the run that follows."""
    values = address.values()
    values["problem"] = ""
    values["reviewer"] = st.session_state[key("reviewer")]


def _fill(name: str, own: Judgement | None) -> None:
    """The fields show what was recorded of this page, when the page or what counts on it is another."""
    shown = (name, own.id if own else None)
    if st.session_state.get("review filled") != shown or "review words" not in st.session_state:
        label, comment = position.words_for(name, own)
        st.session_state["review cause"], st.session_state["review words"] = label or None, comment
        # Last, as the script may be stopped before: these words are never taken for another page's.
        st.session_state["review filled"] = shown


def _labels(here: Position, page: PageReview) -> list[str]:
    """Causes to choose from: those that the page hints at, then those used here, then all there are."""
    used = (row.label for rows in here.given.values() for row in rows.values() if row.label)
    typed = st.session_state["review cause"]
    hinted = (cause.name for cause in page.causes)
    return list(dict.fromkeys((*hinted, *sorted(used), *get_args(CauseName), *([typed] if typed else []))))


def _keep_words() -> None:
    """A callback: words go with the verdict that was given, or wait for it."""
    name, _ = st.session_state["review filled"]
    values = address.values()
    label, comment = values["drafts"][name] = position.typed_words(name) or ("", "")
    values["problem"] = ""
    try:
        review = resources.review(value("review"))
        own = Position(review, review.verdicts.current()).own(name)
        if own is not None and own.verdict is not None and (own.label, own.comment) != (label, comment):
            review.verdicts.give(name, own.verdict, address.reviewer(), label, comment)
            values["drafts"].pop(name)
    except DsocrError as error:
        values["problem"] = str(error)


def _any_own(here: Position) -> bool:
    return any(address.reviewer() in rows for rows in here.given.values())


def verdicts_html(here: Position, page: PageReview) -> str:
    """Everybody's verdict on the page, comments without one, and what was just taken back; escaped."""
    rows = sorted(here.given.get(page.name, {}).values(), key=lambda row: row.time)
    chips = []
    for row in rows:
        more = "".join(f" · {escape(text)}" for text in (row.label, row.comment) if text)
        who = "you" if row.reviewer == address.reviewer() else row.reviewer
        words = f"<b>{escape(who)}</b>: {escape(row.verdict or '')}{more}"
        title = escape(f"{moment(row.time)} {row.reviewer}: {row.comment or row.verdict}", quote=True)
        chips.append(f"<span class='dsocr-review' title='{title}'>{words}</span>")
    if decision(page.name, here.given) == DISAGREEMENT:
        chips.append(f"<span class='dsocr-review'><b>{DISAGREEMENT}</b></span>")
    for row in here.comments:
        words = f"<b>{escape(row.reviewer)}</b>: {escape(row.comment)}"
        chips.append(f"<span class='dsocr-review' title='{escape(row.comment, quote=True)}'>{words}</span>")
    if notice := address.values()["notice"]:
        chips.append(f"<span class='dsocr-review'>{escape(notice)}</span>")
    return "".join(chips)

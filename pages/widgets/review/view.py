"""The page shown: its answer, the verdicts, the viewer and the tabs."""

from __future__ import annotations

from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import moment
from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.reading.records import SIDES, Side
from dsocr_core.review.verdicts import (
    COMMENT_LIMIT,
    DISAGREEMENT,
    REVIEWER_LIMIT,
    VERDICTS,
    Judgement,
    decision,
)  # fmt: skip
from pages.widgets.pair import tabs, viewer
from pages.widgets.pair.answer import answer, facts
from pages.widgets.pair.shown import PairView, result_words, rows_of, truth_of
from pages.widgets.review import address
from pages.widgets.review import queue as queues
from pages.widgets.review.address import STATE, value
from pages.widgets.review.queue import Queue, comment_key
from pages.widgets.shared import resources
from pages.widgets.shared.labels import backend_words, verdict_html
from pages.widgets.shared.messages import show_error
from pages.widgets.streamlit_mends import rerun_page

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

KEYS = {"same": "s", "acceptable": "a", "wrong": "w", "unsure": "u"}
FIELDS = {"r": ("review-name", "your name"), "m": ("review-said", "the comment")}
"""Keys that lead into a field: where it is on the page, and what it is."""
UNDO = "z"
_NEWS_S = 4


_SHORT = {"infer.no_repeat_ngram_size": "n-gram", "infer.max_new_tokens": "at most tokens"}
_ELSEWHERE = ("a", "b", "history", "out", "config")
"""Settings that say nothing of how a page is read."""


def side_name(side: Side, review: Review) -> str:
    """Name a side for people: its backend and dtype; of two runs, the settings that differ and when."""
    of_side = review.a if side == "a" else review.b
    if of_side.backend and review.a.record.id == review.b.record.id:
        return " ".join(filter(None, (backend_words(of_side.backend), of_side.used.get("dtype"))))
    own = [
        f"{_SHORT.get(row['name'], row['name'].rpartition('.')[2].replace('_', ' '))} {row[side]}"
        for row in review.settings().to_dict("records")
        if row["section"] == "settings" and not row["equal"] and row[side] is not None
        and row["name"] not in _ELSEWHERE
    ]  # fmt: skip
    backend = backend_words(of_side.backend) if of_side.backend else ""
    return " · ".join(filter(None, (", ".join(own[:2]), backend, moment(of_side.record.created))))


def draw(queue: Queue, page: PageReview) -> None:
    """Draw the page of a review."""
    review = queue.review
    comparison = review.detail(page.name)
    sheets = len(comparison.request.images)
    sheet = STATE.sheet(sheets)
    picture, size, note = _picture(review, page, sheet)
    found, rows = review.picture(page.name, sheet), rows_of(comparison, sheet)
    names = {side: f"{side.upper()}: {side_name(side, review)}" for side in SIDES}
    shown = PairView(
        comparison, names, rows, STATE.selected(len(rows)), STATE.select, "review ", sheet,
        truth_of(found.path if found else None), page.causes,
    )  # fmt: skip
    said = answer(shown) or " ".join(f"{reason[:1].upper()}{reason[1:]}." for reason in page.reasons)
    with st.container(horizontal=True, vertical_alignment="top", key="strip"):
        st.html(
            verdict_html(page.verdict, said, [("", page.name[:80]), *facts(shown)], note), width="stretch"
        )
        st.button("All pages", key="review all pages", icon=":material/grid_view:", width="content",
                  on_click=STATE.show_page, args=("",))  # fmt: skip
    with st.container():  # with or without a problem, the viewer keeps its place
        _verdict(queue, page)
    viewer.draw(
        shown,
        viewer.image_values(f"{page.name}{sheet or ''}", picture, "review", size),
        {side: _pane_words(page, shown, side) for side in SIDES},
        STATE,
        f"{page.name}: {VERDICT_WORDS[page.verdict]}. {answer(shown)}",
        position={
            "index": queue.position,
            "count": len(queue.pages),
            "first": queue.neighbour(-1) is None and sheet == 0,
            "last": queue.neighbour(1) is None and sheet + 1 == sheets,
        },
        around={
            "taken": value("taken"),
            "subject": page.name,
            "keys": _keys(),
            "fields": ", ".join(f".st-key-{field} *" for field, _ in FIELDS.values()),
            "cookie": address.cookie(),
            "ask": {"field": FIELDS["r"][0], "at": value("asked")},
        },
    )
    tabs.draw(shown, STATE)


def _keys() -> list[dict[str, str]]:
    # Without a name a verdict leads to its field, at once: what is typed next is the name.
    ask = {} if address.reviewer() else {"field": FIELDS["r"][0]}
    verdicts = [{"key": key, "act": word, "does": word} | ask for word, key in KEYS.items()]
    fields = [{"key": key, "field": field, "does": f"type {what}"} for key, (field, what) in FIELDS.items()]
    return [*verdicts, {"key": UNDO, "act": "undo", "does": "undo your last verdict"}, *fields]


def _pane_words(page: PageReview, shown: PairView, side: Side) -> dict[str, str]:
    """The line over a pane: what was read; a notice where there is nothing to show."""
    if page.names[SIDES.index(side)] is None:
        return viewer.pane_words("not in this run", f"{side.upper()} does not have this page.")
    if (result := shown.results.get(side)) is not None:
        return viewer.pane_words(result_words(result))
    failed = (item.words for item in page.differences if item.where == side)
    return viewer.pane_words("failed", next(failed, ""))


def _picture(review: Review, page: PageReview, sheet: int) -> tuple[resources.Picture, tuple[int, int], str]:
    """The page's picture, the page's size, and what there is to say about the picture."""
    found = review.picture(page.name, sheet)
    if found is not None:
        with suppress(DsocrError):
            picture = resources.page_picture(found.path, resources.base_settings().max_pixels)
            note = "only the picture with one side's boxes is left" if found.with_boxes else ""
            return picture, (found.width, found.height), note
    lost = "its picture is not on this machine: boxes on an empty sheet"
    return resources.empty_sheet(), page.size_of(sheet) or (999, 999), lost


def prepare(queue: Queue) -> None:
    """Prepare the neighbours in the queue in the background."""

    def ready(page: Any) -> None:
        with suppress(DsocrError):
            queue.review.detail(page.name)
            _picture(queue.review, page, 0)

    for step in (1, 2, -1):
        if (page := queue.neighbour(step)) is not None:
            resources.prefetcher().submit(ready, page)


# --- verdicts -------------------------------------------------------------------------------------


def _verdict(queue: Queue, page: PageReview) -> None:
    """Four buttons, a comment, the name; the verdicts of others."""
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
            on_click=queues.act_on, args=("undo", page.name),
            disabled=not any(address.reviewer() in rows for rows in queue.given.values()),
        )  # fmt: skip
        with st.container(key="review name", width=140):
            st.text_input(
                "Reviewer", placeholder="your name (r)", max_chars=REVIEWER_LIMIT,
                label_visibility="collapsed", on_change=STATE.put, args=("problem", ""),
                **STATE.bound("reviewer"),
            )  # fmt: skip
    if problem := value("problem"):
        show_error(problem)
    st.html(verdicts_html(queue, page))
    verdicts = queue.review.verdicts
    drawn = len(verdicts.rows())

    def look() -> None:
        """Draw the page again when another reviewer has written something."""
        queue.review.history.refresh()
        if len(verdicts.rows()) != drawn:
            rerun_page()

    st.fragment(look, run_every=_NEWS_S)()


def _comment(name: str) -> None:
    """A callback: a comment goes with the verdict that was given, or waits for it."""
    STATE.put("problem", "")
    try:
        review = resources.review(value("review"))
        own = queues.queue_of(review).own(name)
        if own is not None and own.verdict is not None and own.comment != st.session_state[comment_key(name)]:
            queues.judge(review, name, own.verdict)
    except DsocrError as error:
        STATE.put("problem", str(error))


def verdicts_html(queue: Queue, page: PageReview) -> str:
    """All verdicts on the page, comments without one, and what was just undone; escaped."""
    rows = sorted(queue.given.get(page.name, {}).values(), key=lambda row: row.time)
    chips = [_chip(row, " · ".join(filter(None, (row.verdict, row.comment)))) for row in rows]
    if decision(page.name, queue.given) == DISAGREEMENT:
        chips.append(f"<span class='dsocr-review'><b>{DISAGREEMENT}</b></span>")
    chips += [_chip(row, row.comment) for row in queue.review.verdicts.comments().get(page.name, [])]
    if notice := value("notice"):
        chips.append(f"<span class='dsocr-review'>{escape(notice)}</span>")
    return f"<div class='dsocr-line'>{''.join(chips) or '&nbsp;'}</div>"


def _chip(row: Judgement, said: str) -> str:
    who = "you" if row.reviewer == address.reviewer() else row.reviewer
    title = escape(f"{moment(row.time)} {row.reviewer}: {said}", quote=True)
    return f"<span class='dsocr-review' title='{title}'><b>{escape(who)}</b>: {escape(said)}</span>"

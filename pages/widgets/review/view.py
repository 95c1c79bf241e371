"""The page shown: its answer, the verdicts, the viewer and the tabs."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.records import SIDES, Side
from pages.widgets.pair import cause, details, differences, layers, viewer
from pages.widgets.pair.answer import answer, facts
from pages.widgets.pair.shown import PairView, result_words, rows_of, sheets_of
from pages.widgets.pair.truth import truth_of
from pages.widgets.review import address, verdict
from pages.widgets.review.address import STATE, value
from pages.widgets.review.queue import Queue
from pages.widgets.shared import figure, resources
from pages.widgets.shared.labels import backend_words, side_letter
from pages.widgets.shared.verdicts import VERDICTS, verdict_html

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

_SHORT = {"infer.no_repeat_ngram_size": "n-gram", "infer.max_new_tokens": "at most tokens"}
_ELSEWHERE = ("a", "b", "history", "out", "config")
"""Settings that say nothing of how a page is read."""
_LOST = "its picture is not on this machine: boxes on an empty sheet"
_WITH_BOXES = "only the picture with one side's boxes is left"


def side_name(side: Side, review: Review) -> str:
    """Name a side for people: its backend and dtype, or the settings in which its run differs."""
    of_side = review.a if side == "a" else review.b
    if of_side.backend and review.a.record.id == review.b.record.id:
        return " ".join(filter(None, (backend_words(of_side.backend), of_side.used.get("dtype"))))
    own = [
        f"{_SHORT.get(row['name'], row['name'].rpartition('.')[2].replace('_', ' '))} {row[side]}"
        for row in review.settings().to_dict("records")
        if row["section"] == "settings" and not row["equal"] and row[side] is not None
        and row["name"] not in _ELSEWHERE
    ]  # fmt: skip
    return " · ".join(filter(None, (", ".join(own[:2]), of_side.name)))


def draw(queue: Queue, page: PageReview) -> None:
    """Draw the page of a review."""
    review = queue.review
    comparison = review.detail(page.name)
    sheet = STATE.sheet(sheets_of(comparison))
    picture, size, note = _picture(review, page, sheet)
    found = review.picture(page.name, sheet)
    rows = rows_of(comparison, sheet)
    names = {side: f"{side_letter(side)}: {side_name(side, review)}" for side in SIDES}
    shown = PairView(
        comparison, names, rows, STATE.selected(len(rows)), STATE.select, "review ", sheet,
        truth_of(found.path if found else None), page.causes,
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="top", key="strip"):
        st.html(_answer(page, shown, note), width="stretch")
        st.button("All pages", key="review all pages", icon=":material/grid_view:", width="content",
                  on_click=STATE.show_page, args=("",))  # fmt: skip
    verdict.draw(queue, page)
    viewer.draw(
        shown,
        viewer.image_values(f"{page.name}{sheet or ''}", picture, size, "review"),
        {side: _pane_words(page, shown, side) for side in SIDES},
        (value("mode"), lambda mode: address.put("mode", mode)),
        f"{page.name}: {VERDICTS[page.verdict].words}. {answer(shown)}",
        position={
            "index": queue.position,
            "count": len(queue.pages),
            "first": queue.neighbour(-1) is None and sheet == 0,
            "last": queue.neighbour(1) is None and sheet + 1 == sheets_of(comparison),
        },
        around={
            "taken": STATE.values["taken"],
            "subject": page.name,
            "keys": _keys(),
            "fields": ", ".join(f".st-key-{field} *" for field, _ in verdict.FIELDS.values()),
            "cookie": address.cookie(),
            "ask": {"field": verdict.FIELDS["r"][0], "at": STATE.values["asked"]},
        },
    )
    figure.tabs(
        {
            "Differences": lambda: differences.draw(shown),
            "Cause": lambda: cause.draw(shown, lambda: layers.draw_recorded(comparison, "review layers")),
            "Details": lambda: details.draw(shown),
        },
        STATE,
    )


def _answer(page: PageReview, shown: PairView, note: str) -> str:
    said = answer(shown) or " ".join(f"{reason[:1].upper()}{reason[1:]}." for reason in page.reasons)
    return verdict_html(page.verdict, said, [("", page.name[:80]), *facts(shown)], note)


def _keys() -> list[dict[str, str]]:
    # Without a name a verdict leads to its field, at once: what is typed next is the name.
    ask = {} if address.reviewer() else {"field": verdict.FIELDS["r"][0]}
    verdicts = [{"key": key, "act": word, "does": word} | ask for word, key in verdict.KEYS.items()]
    fields = [
        {"key": key, "field": field, "does": f"type {what}"} for key, (field, what) in verdict.FIELDS.items()
    ]
    return [*verdicts, {"key": verdict.UNDO, "act": "undo", "does": "undo your last verdict"}, *fields]


def _pane_words(page: PageReview, shown: PairView, side: Side) -> dict[str, str]:
    """The line over a pane: what was read; a notice where there is nothing to show."""
    if page.names[SIDES.index(side)] is None:
        words = {"summary": "not in this run", "message": f"{side_letter(side)} does not have this page."}
    elif (result := shown.results.get(side)) is None:
        failed = next((item.words for item in page.differences if item.where.side == side), "")
        words = {"summary": "failed", "message": failed}
    else:
        words = {"summary": result_words(result), "message": ""}
    return words | {"action": ""}


# --- the picture ----------------------------------------------------------------------------------


def _picture(review: Review, page: PageReview, sheet: int) -> tuple[resources.Picture, tuple[int, int], str]:
    """The page's picture, the page's size, and what there is to say about the picture."""
    found = review.picture(page.name, sheet)
    if found is not None:
        with suppress(DsocrError):
            picture = resources.page_picture(found.path, resources.base_settings().max_pixels)
            return picture, (found.width, found.height), _WITH_BOXES if found.with_boxes else ""
    return resources.empty_sheet(), page.size_of(sheet) or (999, 999), _LOST


def prepare(queue: Queue, worker: Executor) -> None:
    """Have what the neighbours in the queue need at hand before they are asked for."""

    def ready(page: Any) -> None:
        with suppress(DsocrError):
            queue.review.detail(page.name)
            _picture(queue.review, page, 0)

    for step in (1, 2, -1):
        if (page := queue.neighbour(step)) is not None:
            worker.submit(ready, page)

"""The page shown: the strip with its figures, and the viewer."""

from __future__ import annotations

import io
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.reading.parity_records import with_cause
from dsocr_core.reading.records import SIDES, Side
from dsocr_core.runs.labels import short
from pages.widgets.pair import sheets, viewer
from pages.widgets.pair.shown import Shown, result_words, rows_of
from pages.widgets.review import address, verdict
from pages.widgets.review.address import value
from pages.widgets.review.position import Position
from pages.widgets.review.sidebar import kind_words
from pages.widgets.shared import resources, soon
from pages.widgets.shared.labels import side_label, side_letter
from pages.widgets.shared.strip import Fact, Strip, parity_facts, strip_html, verdict_words

if TYPE_CHECKING:
    from dsocr_core.reading.parity_records import Difference
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

_SHORT = {"infer.no_repeat_ngram_size": "n-gram", "infer.max_new_tokens": "at most tokens"}
_ELSEWHERE = ("a", "b", "history", "out", "config")
"""Settings that say nothing of how a page is read."""
_LOST = "Its picture is not on this machine: boxes on an empty sheet."
_WITH_BOXES = "Only the picture with one side's boxes on it is left."


@dataclass(frozen=True, kw_only=True)
class PageShown(Shown):
    """A page as its review shows it."""

    review: Review
    page: PageReview

    def row_of_difference(self, item: Difference) -> int | None:
        """The first row that a difference is about; None when it is about the page."""
        boxes_a, boxes_b = item.where.boxes_a, item.where.boxes_b
        if not boxes_a and not boxes_b:
            return None
        return self.row_of(next(iter(boxes_a), None), next(iter(boxes_b), None))


def shown_of(review: Review, page: PageReview) -> PageShown:
    """Gather what is drawn of a page of a review, with its times and tokens."""
    comparison = review.detail(page.name)
    sheet = address.sheet(sheets.count(comparison))
    rows = rows_of(comparison, sheet)
    names = {side: _name(side, review) for side in SIDES}
    selected = address.selected(len(rows))
    return PageShown(
        comparison, names, rows, selected, address.select, "review ", sheet, review=review, page=page
    )


def _name(side: Side, review: Review) -> str:
    of_side = review.a if side == "a" else review.b
    if of_side.backend and review.a.record.id == review.b.record.id:
        return side_label(side, of_side.backend)
    own = [
        f"{_SHORT.get(row['name'], row['name'].rpartition('.')[2].replace('_', ' '))} {row[side]}"
        for row in review.settings().to_dict("records")
        if row["section"] == "settings" and not row["equal"] and row[side] is not None
        and row["name"] not in _ELSEWHERE
    ]  # fmt: skip
    return f"{side_letter(side)}: {' · '.join(filter(None, (', '.join(own[:2]), of_side.name)))}"


def draw(here: Position, shown: PageShown) -> None:
    """The strip, the verdict and the viewer."""
    page = shown.page
    picture, size, note = _picture(shown.review, page, shown.sheet)
    st.html(strip_html(_strip(page, note)))
    reasons = "; ".join(with_cause(page.reasons, page.causes))
    # One line whatever is in it: the viewer stays where it is from page to page.
    st.html(
        "<div class='dsocr-reasons dsocr-line'>"
        f"<span class='dsocr-why' title='{escape(reasons, quote=True)}'>{escape(reasons) or '&nbsp;'}</span>"
        f"{verdict.verdicts_html(here, page)}</div>"
    )
    verdict.draw(here, page)
    viewer.draw(
        shown,
        viewer.image_values(f"{page.name}{shown.sheet or ''}", picture, size, "review"),
        {side: _pane_words(shown, side) for side in SIDES},
        (value("mode"), lambda mode: address.put("mode", mode)),
        f"{page.name}: {verdict_words(page.verdict).words}. {kind_words(page)}"
        + (f"; {plural(len(here.comments), 'comment')}" if here.comments else ""),
        position=_position(here, shown),
        around={
            "taken": address.values()["taken"],
            "subject": page.name,
            "keys": _keys(),
            "fields": ", ".join(f".st-key-{field} *" for field, _ in verdict.FIELDS.values()),
            "cookie": address.cookie(),
            "ask": {"field": verdict.FIELDS["r"][0], "at": address.values()["asked"]},
        },
    )


def _position(here: Position, shown: PageShown) -> dict[str, Any]:
    return {
        "index": here.position,
        "count": len(here.queue),
        "first": here.beside(-1) is None and shown.sheet == 0,
        "last": here.beside(1) is None and shown.sheet + 1 == sheets.count(shown.comparison),
    }


def _keys() -> list[dict[str, str]]:
    # Without a name a verdict leads to its field, at once: what is typed next is the name.
    ask = {} if address.reviewer() else {"field": verdict.FIELDS["r"][0]}
    verdicts = [{"key": key, "act": word, "does": word} | ask for word, key in verdict.KEYS.items()]
    fields = [
        {"key": key, "field": field, "does": f"type {what}"} for key, (field, what) in verdict.FIELDS.items()
    ]
    undo = {"key": verdict.UNDO, "act": "undo", "does": "take back your last verdict"}
    return [*verdicts, undo, *fields]


# --- words ----------------------------------------------------------------------------------------


def _strip(page: PageReview, note: str) -> Strip:
    words = verdict_words(page.verdict)
    facts: list[Fact] = [("", short(page.name, 44)), ("", kind_words(page))]
    if page.report is not None:
        facts += parity_facts(page.report)
    return Strip(words.word, words.tone, tuple(facts), note, icon=words.icon)


def _pane_words(shown: PageShown, side: Side) -> dict[str, str]:
    """The line over a pane: what was read; a notice where there is nothing to show."""
    page = shown.page
    if page.names[SIDES.index(side)] is None:
        words = {"summary": "not in this run", "message": f"{side_letter(side)} does not have this page."}
    elif (result := shown.results.get(side)) is None:
        failed = next((item.words for item in page.differences if item.where.side == side), "")
        words = {"summary": "failed", "message": failed}
    else:
        words = {"summary": result_words(result), "message": ""}
    return words | {"action": ""}


# --- the picture ----------------------------------------------------------------------------------


def _picture(
    review: Review, page: PageReview, sheet: int = 0
) -> tuple[resources.Picture, tuple[int, int], str]:
    """The page's picture, the page's size, and what there is to say about the picture."""
    found = review.picture(page.name, sheet)
    if found is not None:
        with suppress(DsocrError):
            picture = resources.page_picture(found.path, resources.base_settings().max_pixels)
            return picture, (found.width, found.height), _WITH_BOXES if found.with_boxes else ""
    return _sheet(), page.size_of(sheet) or (999, 999), _LOST


def _sheet() -> resources.Picture:
    """An empty page."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "white").save(buffer, "PNG")
    return resources.Picture(buffer.getvalue(), "image/png", 8, 8)


def _thumbnail(review: Review, page: PageReview, sheet: int = 0) -> resources.Picture:
    found = review.picture(page.name, sheet)
    return _sheet() if found is None else resources.thumbnail(found.path)


def thumbnail(review: Review, page: PageReview) -> Future[resources.Picture]:
    return soon.made(("review", review.key, page.name), partial(_thumbnail, review, page))


def prepare(here: Position, worker: Executor) -> None:
    """Have what the neighbours in the queue need at hand before they are asked for."""
    for step in (1, 2, -1):
        if (page := here.beside(step)) is not None:
            worker.submit(_prepare, here.review, page)


def _prepare(review: Review, page: PageReview) -> None:
    with suppress(DsocrError):
        review.detail(page.name)
        _picture(review, page)

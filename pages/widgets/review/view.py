"""The page in sight: the strip with its figures, and the viewer."""

from __future__ import annotations

import io
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st
from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.records import OcrResult
from pages.widgets.compare.verdict import Strip, parity_facts, strip_html
from pages.widgets.components.viewer import show_viewer
from pages.widgets.components.viewer.payload import MODES, Pairing, lone_pairings, pair_values, pairings
from pages.widgets.review import address
from pages.widgets.review import verdict as review_verdict
from pages.widgets.review.address import value
from pages.widgets.review.position import Position
from pages.widgets.review.sidebar import kind_words
from pages.widgets.shared import reading, resources
from pages.widgets.shared.formats import duration, plural

if TYPE_CHECKING:
    from dsocr_core.review.page import Difference, PageDetail, PageReview, PageSide
    from dsocr_core.review.review import Review

SIDES = ("A", "B")
_LOST = "Its picture is not on this machine: boxes on an empty sheet."
_WITH_BOXES = "Only the picture with one side's boxes on it is left."


@dataclass(frozen=True)
class Sight:
    """The page in sight and what is drawn of it."""

    review: Review
    page: PageReview

    @cached_property
    def detail(self) -> PageDetail:
        return self.review.detail(self.page.name)

    @property
    def results(self) -> list[OcrResult]:
        return [result for result in (self.detail.result_a, self.detail.result_b) if result is not None]

    @cached_property
    def rows(self) -> list[Pairing]:
        """Pairs as the viewer numbers them."""
        if self.page.report is not None:
            return pairings(self.page.pairs)
        side = next((side for side in (self.page.a, self.page.b) if side and side.boxes), None)
        return lone_pairings(side.boxes, "a" if side.letter == "a" else "b") if side else []

    def row_of(self, a: int | None, b: int | None) -> int | None:
        """The row of A's box or of B's, by their `Box.index`."""
        for number, row in enumerate(self.rows):
            if (row.a and row.a.index == a) or (row.b and row.b.index == b):
                return number
        return None

    def row_of_difference(self, item: Difference) -> int | None:
        """The first row that a difference is about; None when it is about the page."""
        if not item.boxes_a and not item.boxes_b:
            return None
        return self.row_of(next(iter(item.boxes_a), None), next(iter(item.boxes_b), None))

    @cached_property
    def differing(self) -> set[int]:
        """Rows that some difference is about."""
        found: set[int] = set()
        for item in self.page.differences:
            a, b = set(item.boxes_a), set(item.boxes_b)
            found |= {
                number
                for number, row in enumerate(self.rows)
                if (row.a and row.a.index in a) or (row.b and row.b.index in b)
            }
        return found

    @property
    def selected(self) -> int | None:
        return address.selected(len(self.rows))


def draw(place: Position, sight: Sight) -> None:
    """The strip, the verdict and the viewer."""
    page = sight.page
    picture, size, note = _picture(sight.review, page)
    st.html(strip_html(_strip(page, note)))
    reasons = "; ".join([*page.reasons, *(f"likely cause: {hint.words}" for hint in page.hints[:1])])
    # One line whatever is in it: the viewer keeps its place from page to page.
    st.html(
        "<div class='dsocr-reasons dsocr-line'>"
        f"<span class='dsocr-why' title='{escape(reasons, quote=True)}'>{escape(reasons) or '&nbsp;'}</span>"
        f"{review_verdict.said_html(place, page)}</div>"
    )
    review_verdict.draw(place, page)
    rows = sight.rows
    show_viewer(
        "review viewer",
        {
            "image": {
                "id": f"{page.name}:{size[0]}x{size[1]}",
                "url": resources.picture_url(picture, "review"),
                "width": size[0],
                "height": size[1],
            },
            "position": _position(place),
            "backends": {
                "a": _side_words(sight, page.a, sight.detail.result_a, sight.review.a.name),
                "b": _side_words(sight, page.b, sight.detail.result_b, sight.review.b.name),
            },
            "sides": {"a": SIDES[0], "b": SIDES[1]},
            "pairs": pair_values(rows, sight.differing),
            "colours": _colours(rows),
            "mode": value("mode"),
            "selected": sight.selected,
            "divergence": _parting(sight),
            "around": {
                "taken": address.kept()["taken"],
                "subject": page.name,
                "keys": _keys(),
                "fields": ", ".join(f".st-key-{field} *" for field, _ in review_verdict.FIELDS.values()),
                "cookie": address.cookie(),
            },
        },
        on_selected=lambda: address.select(st.session_state["review viewer"].get("selected")),
        on_mode=_take_mode,
    )


def _take_mode() -> None:
    mode: Any = st.session_state["review viewer"].get("mode")
    if mode in MODES:
        address.put("mode", mode)


def _position(place: Position) -> dict[str, Any]:
    return {
        "index": place.position,
        "count": len(place.queue),
        "first": place.beside(-1) is None,
        "last": place.beside(1) is None,
    }


def _keys() -> list[dict[str, str]]:
    verdicts = [{"key": key, "act": word, "does": word} for word, key in review_verdict.KEYS.items()]
    fields = [
        {"key": key, "field": field, "does": f"type {what}"}
        for key, (field, what) in review_verdict.FIELDS.items()
    ]
    undo = {"key": review_verdict.UNDO, "act": "undo", "does": "take back your last verdict"}
    return [*verdicts, undo, *fields]


# --- words ----------------------------------------------------------------------------------------


def _strip(page: PageReview, note: str) -> Strip:
    name = page.name if len(page.name) <= 60 else f"…{page.name[-59:]}"
    facts: list[tuple[str, str]] = [("", name), ("", kind_words(page))]
    if page.report is not None:
        facts += [fact for fact in parity_facts(page.report) if fact[0] != "inputs"]
        facts.append(("inputs", _inputs_word(page)))
    return Strip(page.verdict.upper(), page.verdict, tuple(facts), note)


def _inputs_word(page: PageReview) -> str:
    marks = {line.mark for line in page.inputs}
    if "different" in marks:
        return "differ"
    return (
        "equal"
        if marks <= {"equal", "shown"}
        else "equal as far as recorded"
        if "equal" in marks
        else "not recorded"
    )


def _side_words(sight: Sight, side: PageSide | None, result: OcrResult | None, name: str) -> dict[str, str]:
    """The line over a pane: whose it is, and what it read; a notice where there is nothing to show."""
    if side is None:
        return {"summary": name, "message": f"{name} does not have this page.", "action": ""}
    if result is None:
        message = (
            f"{name} could not read it: {side.error[:300]}"
            if side.error
            else f"{name} has no text on record."
        )
        return {"summary": name, "message": message, "action": ""}
    end = "" if side.finish_reason != "length" else ", no end token"
    tokens = f", {plural(len(result.token_ids), 'token')}" if result.token_ids else ""
    total = f", {duration(result.total_ms)}" if result.timings else ""
    boxes = plural(len(side.boxes), "box", "boxes")
    return {"summary": f"{name}: {boxes}{tokens}{end}{total}", "message": "", "action": ""}


def _colours(rows: list[Pairing]) -> dict[str, str]:
    labels = {box.label for row in rows for box in (row.a, row.b) if box}
    return {label: reading.label_colour(label) for label in labels}


def _parting(sight: Sight) -> dict[str, Any] | None:
    """Where the tokens part, for the viewer to mark."""
    divergence = sight.detail.divergence
    if divergence is None:
        return None
    return {
        "a": None if divergence.box_a is None else sight.row_of(divergence.box_a, None),
        "b": None if divergence.box_b is None else sight.row_of(None, divergence.box_b),
        "words": f"parts at token {divergence.index}",
    }


# --- the picture ----------------------------------------------------------------------------------


def _picture(review: Review, page: PageReview) -> tuple[resources.Picture, tuple[int, int], str]:
    """The page's picture, the page's size, and what there is to say about the picture."""
    found = review.picture(page.name)
    if found is not None:
        with suppress(DsocrError):
            picture = resources.page_picture(found.path, resources.base_settings().max_pixels)
            return picture, (found.width, found.height), _WITH_BOXES if found.with_boxes else ""
    side = next((side for side in (page.b, page.a) if side and side.width and side.height), None)
    size = (side.width, side.height) if side and side.width and side.height else (999, 999)
    return _sheet(), size, _LOST


def _sheet() -> resources.Picture:
    """An empty page."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "white").save(buffer, "PNG")
    return resources.Picture(buffer.getvalue(), "image/png", 8, 8)


def prepare(place: Position, worker: Executor) -> None:
    """Have what the neighbours in the queue need at hand before they are asked for."""
    for step in (1, 2, -1):
        if (page := place.beside(step)) is not None:
            worker.submit(_prepare, place.review, page)


def _prepare(review: Review, page: PageReview) -> None:
    with suppress(DsocrError):
        review.detail(page.name)
        _picture(review, page)

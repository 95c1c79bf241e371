"""The page shown: the strip with its figures, and the viewer."""

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
from dsocr_core.records import SIDES, OcrResult, Side
from pages.widgets.components.viewer import show_viewer
from pages.widgets.components.viewer.payload import MODES, pair_values
from pages.widgets.review import address, verdict
from pages.widgets.review.address import value
from pages.widgets.review.position import Position
from pages.widgets.review.sidebar import kind_words
from pages.widgets.shared import resources
from pages.widgets.shared.formats import duration, plural
from pages.widgets.shared.labels import side_label, side_letter
from pages.widgets.shared.pairing import Pairing, label_colours, lone_pairings, pairings
from pages.widgets.shared.result_tables import token_count
from pages.widgets.shared.strip import Fact, Strip, parity_facts, strip_html
from pages.widgets.shared.verdicts import verdict_words

if TYPE_CHECKING:
    from dsocr_core.review.page import Difference, PageDetail, PageReview
    from dsocr_core.review.review import Review

_LOST = "Its picture is not on this machine: boxes on an empty sheet."
_WITH_BOXES = "Only the picture with one side's boxes on it is left."


@dataclass(frozen=True)
class Shown:
    """The page shown and what is drawn of it."""

    review: Review
    page: PageReview

    @cached_property
    def detail(self) -> PageDetail:
        return self.review.detail(self.page.name)

    @property
    def results(self) -> dict[Side, OcrResult]:
        """The results that are on record, A's first."""
        return self.detail.comparison.results

    @property
    def names(self) -> dict[Side, str]:
        """What stands over the panes: the backend of a run against the other's, else the run."""
        return {side: _name(side, self.review) for side in SIDES}

    @cached_property
    def rows(self) -> list[Pairing]:
        """Pairs as the viewer numbers them."""
        if self.page.report is not None:
            return pairings(self.page.pairs)
        for side, result in self.results.items():
            if boxes := result.boxes:
                return lone_pairings(boxes, side)
        return []

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


def _name(side: Side, review: Review) -> str:
    of_side = review.a if side == "a" else review.b
    if of_side.backend and review.a.record.id == review.b.record.id:
        return side_label(side, of_side.backend)
    return f"{side_letter(side)}: {of_side.name}"


def draw(here: Position, shown: Shown) -> None:
    """The strip, the verdict and the viewer."""
    page = shown.page
    picture, size, note = _picture(shown.review, page)
    st.html(strip_html(_strip(page, note)))
    reasons = cause_first(page)
    # One line whatever is in it: the viewer stays where it is from page to page.
    st.html(
        "<div class='dsocr-reasons dsocr-line'>"
        f"<span class='dsocr-why' title='{escape(reasons, quote=True)}'>{escape(reasons) or '&nbsp;'}</span>"
        f"{verdict.verdicts_html(here, page)}</div>"
    )
    verdict.draw(here, page)
    rows = shown.rows
    show_viewer(
        "review viewer",
        {
            "image": {
                "id": f"{page.name}:{size[0]}x{size[1]}",
                "url": resources.picture_url(picture, "review"),
                "width": size[0],
                "height": size[1],
            },
            "position": _position(here),
            "names": shown.names,
            "sides": {side: _side_words(shown, side) for side in SIDES},
            "pairs": pair_values(rows, shown.differing),
            "colours": label_colours(rows),
            "mode": value("mode"),
            "selected": shown.selected,
            "divergence": _divergence(shown),
            "around": {
                "taken": address.values()["taken"],
                "subject": page.name,
                "keys": _keys(),
                "fields": ", ".join(f".st-key-{field} *" for field, _ in verdict.FIELDS.values()),
                "cookie": address.cookie(),
                "ask": {"field": verdict.FIELDS["r"][0], "at": address.values()["asked"]},
            },
        },
        on_selected=lambda: address.select(st.session_state["review viewer"].get("selected")),
        on_mode=_take_mode,
    )


def cause_first(page: PageReview) -> str:
    """What explains a page's differences, then what follows from it."""
    if not page.hints:
        return "; ".join(page.reasons)
    return " → ".join(filter(None, (page.hints[0].words, "; ".join(page.reasons))))


def _take_mode() -> None:
    mode: Any = st.session_state["review viewer"].get("mode")
    if mode in MODES:
        address.put("mode", mode)


def _position(here: Position) -> dict[str, Any]:
    return {
        "index": here.position,
        "count": len(here.queue),
        "first": here.beside(-1) is None,
        "last": here.beside(1) is None,
    }


def _keys() -> list[dict[str, str]]:
    verdicts = [{"key": key, "act": word, "does": word} for word, key in verdict.KEYS.items()]
    fields = [
        {"key": key, "field": field, "does": f"type {what}"} for key, (field, what) in verdict.FIELDS.items()
    ]
    undo = {"key": verdict.UNDO, "act": "undo", "does": "take back your last verdict"}
    return [*verdicts, undo, *fields]


# --- words ----------------------------------------------------------------------------------------


def _strip(page: PageReview, note: str) -> Strip:
    name = page.name if len(page.name) <= 60 else f"…{page.name[-59:]}"
    words = verdict_words(page.verdict)
    facts: list[Fact] = [("", name), ("", kind_words(page))]
    if page.report is not None:
        facts += parity_facts(page.report)
    return Strip(words.word, words.tone, tuple(facts), note, icon=words.icon)


def _side_words(shown: Shown, side: Side) -> dict[str, str]:
    """The line over a pane: what was read; a notice where there is nothing to show."""
    letter, page = side_letter(side), shown.page
    if page.names[SIDES.index(side)] is None:
        return {"summary": "not in this run", "message": f"{letter} does not have this page.", "action": ""}
    result = shown.results.get(side)
    if result is None:
        words = next((item.words for item in page.differences if item.where == side), "")
        return {"summary": "failed", "message": words, "action": ""}
    found = [plural(len(result.boxes), "box", "boxes")]
    if result.token_ids:
        found.append(plural(token_count(result), "token"))
    if result.finish_reason == "length":
        found.append("no end token")
    if result.timings:
        found.append(duration(result.total_ms))
    return {"summary": ", ".join(found), "message": "", "action": ""}


def _divergence(shown: Shown) -> dict[str, Any] | None:
    """Where the tokens diverge, for the viewer to mark."""
    divergence = shown.detail.divergence
    if divergence is None:
        return None
    return {
        "a": None if divergence.box_a is None else shown.row_of(divergence.box_a, None),
        "b": None if divergence.box_b is None else shown.row_of(None, divergence.box_b),
        "words": f"diverges at token {divergence.index}",
    }


# --- the picture ----------------------------------------------------------------------------------


def _picture(review: Review, page: PageReview) -> tuple[resources.Picture, tuple[int, int], str]:
    """The page's picture, the page's size, and what there is to say about the picture."""
    found = review.picture(page.name)
    if found is not None:
        with suppress(DsocrError):
            picture = resources.page_picture(found.path, resources.base_settings().max_pixels)
            return picture, (found.width, found.height), _WITH_BOXES if found.with_boxes else ""
    return _sheet(), page.size or (999, 999), _LOST


def _sheet() -> resources.Picture:
    """An empty page."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "white").save(buffer, "PNG")
    return resources.Picture(buffer.getvalue(), "image/png", 8, 8)


def prepare(here: Position, worker: Executor) -> None:
    """Have what the neighbours in the queue need at hand before they are asked for."""
    for step in (1, 2, -1):
        if (page := here.beside(step)) is not None:
            worker.submit(_prepare, here.review, page)


def _prepare(review: Review, page: PageReview) -> None:
    with suppress(DsocrError):
        review.detail(page.name)
        _picture(review, page)

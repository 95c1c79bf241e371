"""The landing of a review: the answer, the chips, a grid of pages with the crop of each difference."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.page.documents import load_image
from dsocr_core.reading.parity_records import KINDS, VERDICT_WORDS, VERDICTS, Verdict
from dsocr_core.review.html import html_report
from dsocr_core.review.verdicts import UNREVIEWED, decision
from pages.widgets.components import show_gallery
from pages.widgets.pair.answer import main_difference, readings_of, without_settings
from pages.widgets.review.address import STATE, value
from pages.widgets.review.queue import ONLY_A, ONLY_B, SAME, Queue, group_of
from pages.widgets.review.view import side_name
from pages.widgets.shared import resources
from pages.widgets.shared.labels import VERDICT_SIGNS, verdict_html
from pages.widgets.shared.messages import plain
from pages.widgets.streamlit_mends import rerun_page

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

_PART = 60
_CROP_SIDE, _MARGIN = 480, 12
"""Longest side of a crop in pixels, and the pixels of the page around its boxes."""
_POLL_S = 0.7
_ON = {"text": "text differs", "boxes": "boxes differ", "spelling": "spelling differs", SAME: SAME}
"""Groups of pages as the sentence names them."""


def draw(queue: Queue) -> None:
    with st.container(horizontal=True, vertical_alignment="top", key="strip"):
        st.html(answer_html(queue), width="stretch")
        _report(queue.review)
    # The only filters: of several outputs any passes, and of several decisions.
    chips = queue.chips
    st.pills(
        "Show", [*chips, *(name for name in value("show") if name not in chips)], selection_mode="multi",
        format_func=lambda name: f"{plain(name)} {chips.get(name, 0):,}", label_visibility="collapsed",
        **STATE.bound("show"),
    )  # fmt: skip
    if not queue.pages:
        st.markdown("These two runs share no page." if not value("show") else "No page has these chips.")
        return
    _pages(queue)


def answer_html(queue: Queue) -> str:
    """Sum up what came out of all pages and, where it is one, the cause."""
    review, pages = queue.review, [page for page in queue.review.pages if not page.in_one_run]
    groups = Counter(group_of(page) for page in pages)
    counts = ", ".join(
        f"{_ON[name]} on {groups[name]}" if name in _ON else f"{groups[name]} {name}"
        for name in queue.chips if groups[name] and name not in (ONLY_A, ONLY_B)
    )  # fmt: skip
    said = f"{plural(len(pages), 'page')}: {counts}." if pages else "No page is in both runs."
    first = [page.causes[0] for page in pages if page.causes]
    causes = {cause.words.partition(";")[0] for cause in first}
    if len(causes) == 1:
        said += f" One cause: {causes.pop()}."
    elif causes:
        named = Counter(cause.name for cause in first).most_common(3)
        said += f" Likely causes: {', '.join(f'{name} {count}' for name, count in named)}."
    # A page that could not be compared leaves it true that others differ.
    worst: Verdict = max(
        (page.verdict for page in pages), default="not_comparable",
        key=lambda verdict: (verdict == "differs", VERDICTS.index(verdict)),
    )  # fmt: skip
    reviewed = sum(page.name in queue.given for page in pages)
    names = f"{side_name('a', review)} against {side_name('b', review)}"
    return verdict_html(worst, said, [("", names), ("", f"{reviewed} of {len(pages)} reviewed")])


def _pages(queue: Queue) -> None:
    count, start = len(queue.pages), 0
    if count > _PART:
        start = st.selectbox(
            "Pages", range(0, count, _PART), width=220, label_visibility="collapsed",
            format_func=lambda first: f"{first + 1:,} to {min(first + _PART, count):,} of {count:,}",
        )  # fmt: skip
    pages = queue.pages[start : start + _PART]
    pictures = [
        resources.soon((queue.review.key, page.name), partial(_picture, queue.review, page)) for page in pages
    ]
    there = [future.done() for future in pictures]
    items = [grid_item(queue, page, _made(future)) for page, future in zip(pages, pictures, strict=True)]
    show_gallery("review grid", "Pages, worst first", items, STATE.show_page)

    def look() -> None:
        if [future.done() for future in pictures] != there:
            rerun_page()

    if not all(there):
        st.fragment(look, run_every=_POLL_S)()


def _made(future: Future[resources.Picture]) -> resources.Picture | None:
    return future.result() if future.done() and future.exception() is None else None


def grid_item(queue: Queue, page: PageReview, picture: resources.Picture | None) -> dict[str, Any]:
    """A page as the gallery takes it."""
    (tone, sign), outputs = VERDICT_SIGNS[page.verdict], without_settings(page.differences)
    reviewed = decision(page.name, queue.given)
    reviews = [f"{name}: {row.verdict}" for name, row in sorted(queue.given.get(page.name, {}).items())]
    kinds = ", ".join(dict.fromkeys(KINDS[item.kind] for item in outputs))
    return {
        "key": page.name,
        "name": page.name,
        "words": kinds or ("same text" if not page.in_one_run else group_of(page)),
        "tone": tone,
        "sign": sign,
        "readings": [each for each in readings_of(main_difference(outputs)) if each] if outputs else [],
        "verdict": "" if reviewed == UNREVIEWED else reviewed,
        "title": "\n".join([page.name[:200], VERDICT_WORDS[page.verdict], *reviews]),
        "url": resources.picture_url(picture, f"grid.{page.name}") if picture else "",
    }


def _picture(review: Review, page: PageReview) -> resources.Picture:
    """The crop of the page's first difference with a place, else the whole page, small."""
    found = review.picture(page.name)
    if found is None:
        return resources.empty_sheet()
    outputs = without_settings(page.differences)
    first = main_difference(outputs) if outputs else None
    boxes = [
        box
        for pair in page.pairs if first is not None
        for box, numbers in ((pair.a, first.boxes_a), (pair.b, first.boxes_b))
        if box is not None and box.page == 0 and numbers[:1] == (box.index,)
    ]  # fmt: skip
    if not boxes:
        return resources.thumbnail(found.path)
    picture, box = load_image(found.path, resources.base_settings().max_pixels), boxes[0]
    wide, high = picture.size
    across, down = wide / max(found.width, 1), high / max(found.height, 1)
    left, right = (min(max(int(x * across), 0), wide) for x in (box.x1 - _MARGIN, box.x2 + _MARGIN))
    top, bottom = (min(max(int(y * down), 0), high) for y in (box.y1 - _MARGIN, box.y2 + _MARGIN))
    crop = picture.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
    return resources.encoded(crop, _CROP_SIDE, 85)


# --- the report -------------------------------------------------------------------------------------


def _report(review: Review) -> None:
    """The button of the report; its files are made when they are asked for, outside of the session."""
    with st.popover("Report", width="content", key="review report"):
        words = st.text_area(
            "Summary for the report", key=f"review words of {review.key}", persist_state="session",
            placeholder="what you conclude", max_chars=4000, height=68,
        )  # fmt: skip
        stem = f"review-{review.key.replace('~', '-before-').replace(':', '-')}"
        for name, end, mime, make in (
            ("Report as HTML", "html", "text/html", lambda: html_report(review, words=words.strip())),
            ("Verdicts as CSV", "verdicts.csv", "text/csv", review.verdicts.to_csv),
        ):
            st.download_button(
                name, make, f"{stem}.{end}", mime, on_click="ignore", icon=":material/download:",
                key=f"review download {end}", width="stretch",
            )  # fmt: skip

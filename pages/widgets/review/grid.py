"""The landing of a review: the answer, the chips, a grid of pages with the crop of each difference."""

from __future__ import annotations

import io
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from dsocr_core.base.formatting import plural
from dsocr_core.page.documents import load_image
from dsocr_core.reading.parity_records import KINDS, SETTINGS, Verdict, Where
from dsocr_core.review.verdicts import UNREVIEWED, decision
from pages.widgets.components.gallery import show_gallery
from pages.widgets.pair.answer import first_of, readings_of
from pages.widgets.review import report
from pages.widgets.review.address import STATE, value
from pages.widgets.review.queue import ONLY_A, ONLY_B, Queue, group_of
from pages.widgets.review.view import side_name
from pages.widgets.shared import resources, soon
from pages.widgets.shared.messages import plain
from pages.widgets.shared.verdicts import VERDICTS, verdict_html

if TYPE_CHECKING:
    from dsocr_core.review.page import PageReview
    from dsocr_core.review.review import Review

_PART = 60
_CROP_SIDE, _MARGIN = 480, 12
"""Longest side of a crop in pixels, and the pixels of the page around its boxes."""


def draw(queue: Queue) -> None:
    with st.container(horizontal=True, vertical_alignment="top", key="strip"):
        st.html(answer_html(queue), width="stretch")
        report.draw(queue.review)
    _chips(queue)
    if not queue.pages:
        st.markdown("These two runs share no page." if not value("show") else "No page has these chips.")
        return
    _pages(queue)
    report.details(queue.review)


def answer_html(queue: Queue) -> str:
    """Sum up what came out of all pages and, where it is one, the cause."""
    review, pages = queue.review, [page for page in queue.review.pages if not page.in_one_run]
    groups = Counter(group_of(page) for page in pages)
    counts = ", ".join(
        f"{groups[name]} {name}" for name in queue.chips if groups[name] and name not in _ALONE
    )
    said = f"{plural(len(pages), 'page')}: {counts}." if pages else "No page is in both runs."
    causes = Counter(page.causes[0].words.partition(";")[0] for page in pages if page.causes)
    if len(causes) == 1:
        said += f" One cause: {next(iter(causes))}."
    elif causes:
        named = Counter(page.causes[0].name for page in pages if page.causes).most_common(3)
        said += f" Likely causes: {', '.join(f'{name} {count}' for name, count in named)}."
    worst: Verdict = min((page.verdict for page in pages), key=_ORDER.index, default="not_comparable")
    reviewed = sum(page.name in queue.given for page in pages)
    names = [("", f"{side_name('a', review)} against {side_name('b', review)}")]
    return verdict_html(worst, said, [*names, ("", f"{reviewed} of {len(pages)} reviewed")])


_ALONE = (ONLY_A, ONLY_B)
_ORDER: list[Verdict] = ["not_comparable", "differs", "within_tolerance", "identical"]


def _chips(queue: Queue) -> None:
    """The only filters: of several outputs any passes, and of several decisions."""
    chips = queue.chips
    options = [*chips, *(name for name in value("show") if name not in chips)]
    st.pills(
        "Show", options, **STATE.bound("show"), selection_mode="multi", label_visibility="collapsed",
        format_func=lambda name: f"{plain(name)} {chips.get(name, 0):,}",
    )  # fmt: skip


def _pages(queue: Queue) -> None:
    count, start = len(queue.pages), 0
    if count > _PART:
        start = st.selectbox(
            "Pages", range(0, count, _PART), width=220, label_visibility="collapsed",
            format_func=lambda first: f"{first + 1:,} to {min(first + _PART, count):,} of {count:,}",
        )  # fmt: skip
    pages = queue.pages[start : start + _PART]
    pictures = {
        page.name: soon.made(("review", queue.review.key, page.name), partial(_picture, queue.review, page))
        for page in pages
    }

    def item(page: PageReview) -> dict[str, Any]:
        return grid_item(queue, page, soon.result(pictures[page.name]))

    show_gallery(
        "review grid", "Pages, worst first", len(pages), -1,
        lambda shown: [item(pages[number]) for number in shown], STATE.show_page, _PART,
    )  # fmt: skip
    soon.redraw_made(pictures.values())


def grid_item(queue: Queue, page: PageReview, picture: resources.Picture | None) -> dict[str, Any]:
    """A page as the gallery takes it."""
    words = VERDICTS[page.verdict]
    outputs = [item for item in page.differences if item.kind not in SETTINGS]
    readings = readings_of(first_of(outputs)) if outputs else ("", "")
    reviewed = decision(page.name, queue.given)
    reviews = [f"{name}: {row.verdict}" for name, row in sorted(queue.given.get(page.name, {}).items())]
    kinds = ", ".join(dict.fromkeys(KINDS[item.kind] for item in outputs))
    return {
        "key": page.name,
        "name": page.name,
        "words": kinds or ("same text" if not page.in_one_run else group_of(page)),
        "tone": words.tone,
        "sign": words.icon,
        "readings": [reading for reading in readings if reading],
        "verdict": "" if reviewed == UNREVIEWED else reviewed,
        "title": "\n".join([page.name[:200], words.words, *reviews]),
        "url": resources.picture_url(picture, f"grid.{page.name}") if picture else "",
    }


def _picture(review: Review, page: PageReview) -> resources.Picture:
    """The crop of the page's first difference with a place, else the whole page, small."""
    found = review.picture(page.name)
    if found is None:
        return resources.empty_sheet()
    outputs = [item for item in page.differences if item.kind not in SETTINGS]
    where = first_of(outputs).where if outputs else Where()
    boxes = [
        box
        for pair in page.pairs
        for box, numbers in ((pair.a, where.boxes_a), (pair.b, where.boxes_b))
        if box is not None and box.page == 0 and numbers[:1] == (box.index,)
    ]
    if not boxes:
        return resources.thumbnail(found.path)
    picture = load_image(found.path, resources.base_settings().max_pixels)
    across, down = picture.width / max(found.width, 1), picture.height / max(found.height, 1)
    box = boxes[0]
    corners = (box.x1 - _MARGIN, box.y1 - _MARGIN, box.x2 + _MARGIN, box.y2 + _MARGIN)
    left, top, right, bottom = (
        int(min(max(value * (across, down)[at % 2], 0), (picture.width, picture.height)[at % 2]))
        for at, value in enumerate(corners)
    )
    part = picture.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
    part.thumbnail((_CROP_SIDE, _CROP_SIDE))
    buffer = io.BytesIO()
    part.save(buffer, "JPEG", quality=85)
    return resources.Picture(buffer.getvalue(), "image/jpeg", part.width, part.height)

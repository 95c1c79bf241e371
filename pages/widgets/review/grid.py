"""Grid of a review: thumbnails with both verdicts, filtered by counts that are clicked."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages.widgets.components.gallery import show_gallery
from pages.widgets.review import address, sidebar, view
from pages.widgets.review.position import Position
from pages.widgets.shared import resources, soon

_PART = 60


def draw(here: Position) -> None:
    """The counts, then the pages that pass; a click opens one."""
    sidebar.draw_filters(here, address.MANY)
    count, start = len(here.queue), max(here.position, 0) // _PART * _PART
    if count > _PART:
        start = st.selectbox(
            "Pages", range(0, count, _PART), index=start // _PART, width=220, label_visibility="collapsed",
            format_func=lambda first: f"{first + 1:,} to {min(first + _PART, count):,} of {count:,}",
        )  # fmt: skip
    pages = here.queue[start : start + _PART]
    waited = {page.name: view.thumbnail(here.review, page) for page in pages}

    def item(number: int) -> dict[str, Any]:
        page = pages[number]
        small = soon.result(waited[page.name])
        url = resources.picture_url(small, f"grid.{page.name}") if small else ""
        return sidebar.line(here, page) | {"url": url}

    show_gallery(
        "review grid", "Pages, worst first", "grid", len(pages), here.position - start,
        lambda shown: list(map(item, shown)), _open, _PART,
    )  # fmt: skip
    soon.redraw_made(waited.values())


def _open(name: str) -> None:
    address.show_page(name)
    address.put("view", "Page")

"""Example that Compare opens on: a recorded page on which A and B differ, and why, in one line.

Under settings that are not the usual ones; they go with the page, so that nobody's own pages are read so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.settings import Attention, Dtype
from pages.widgets.compare.address import put, usual, value
from pages.widgets.shared import resources, sources

PAGE = "11-alpha-label"
BOX = "2"
"""The first that differs: selected, so that both texts are on the screen."""
DTYPE: Dtype = "bfloat16"
ATTENTION: Attention = "sdpa"
WORDS = (
    "An example, recorded on a CPU: A's decoder has sdpa, B's eager attention. In bfloat16 they round "
    "differently, and near ties between tokens fall differently; with eager attention in float32 both agree."
)


def first() -> dict[str, Any]:
    """Give what a new session shows: the example, if it is recorded for the settings of this server."""
    shown = {"page": PAGE, "box": BOX, "dtype": DTYPE, "attention": ATTENTION, "example": True}
    return shown if _is_recorded() else {}


def _is_recorded() -> bool:
    pages = sources.samples()
    if PAGE not in pages.keys:
        return False
    try:
        base = resources.base_settings()
        settings = replace(base, dtype=DTYPE, attention=ATTENTION, preset=base.preset_name)
        page = pages.take(pages.position(PAGE))
        found = resources.runner().page_results(settings, settings.request(page.path, page.name), None)
    except DsocrError:  # said where the settings or the page are drawn
        return False
    return found.comparison is not None and found.comparison.verdict == "differs"


def leave_with_its_page() -> None:
    """Back to the usual number type once another page is chosen; before the widgets are drawn."""
    if not value("example"):
        return
    if value("page") != PAGE or value("source") != "Sample":
        _leave()
        return
    chosen = usual() | {"dtype": DTYPE, "attention": ATTENTION}
    if any(value(name) != of_example for name, of_example in chosen.items()):
        put("example", False)  # the reader's own choice


def draw() -> None:
    """The line that says what one looks at, and the button to the same page without a difference."""
    if not value("example"):
        return
    words, button = st.columns([4, 1.5], vertical_alignment="center")
    words.caption(WORDS)
    button.button("Show a page that agrees", key="example clean", on_click=_leave, width="stretch")


def _leave() -> None:
    """A callback, too."""
    put("example", False)
    for name, usually in usual().items():
        if name in ("dtype", "attention"):
            put(name, usually)

"""Example that Compare opens on: a recorded page on which A and B differ, and why, in one line.

Under settings that are not the usual ones; they go with the page, so that nobody's own pages are read so.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.settings import settings_of
from pages.widgets.compare.address import put, usual, value
from pages.widgets.compare.backends import with_dtype_of_b
from pages.widgets.shared import resources, sources

PAGE = "03-tall-notice"
BOX = "6"
"""The one that differs: selected, so that both texts are on the screen."""
OWN = {"preset": "base", "dtype": "bfloat16", "attention": "eager", "dtype_b": "float32"}
"""Its settings, `data.samples.record.EXAMPLE_SETTINGS`."""
WORDS = (
    "An example, recorded on a CPU: A computes in bfloat16, B in float32, and on this page, at preset base, "
    "that costs one sign of a time of day. With preset small in float32 both agree."
)


def first() -> dict[str, Any]:
    """Give what a new session shows: the example, if it is recorded for the settings of this server."""
    return {"page": PAGE, "box": BOX, "example": True, **OWN} if _is_recorded() else {}


def _is_recorded() -> bool:
    pages = sources.samples()
    if PAGE not in pages.keys:
        return False
    try:
        own = {name: each for name, each in OWN.items() if name != "dtype_b"}
        settings = with_dtype_of_b(settings_of(asdict(resources.base_settings()) | own), OWN["dtype_b"])
        page = pages.take(pages.position(PAGE))
        found = resources.runner().page_results(settings, settings.request(page.path, page.name), None)
    except DsocrError:  # said where the settings or the page are drawn
        return False
    return found.comparison is not None and found.comparison.verdict == "differs"


def leave_with_its_page() -> None:
    """Back to the usual settings once another page is chosen; before the widgets are drawn."""
    if not value("example"):
        return
    if value("page") != PAGE or value("source") != "Sample":
        _leave()
        return
    if any(value(name) != of_example for name, of_example in (usual() | OWN).items()):
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
    for name in OWN:
        put(name, usual().get(name, ""))

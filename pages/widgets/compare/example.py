"""Example that Compare opens on: a recorded page on which A and B differ, and why, in one line.

Under settings that are not the usual ones; they go with the page, so that nobody's own pages are read so.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import settings_of
from pages.widgets.compare.address import put, usual, value
from pages.widgets.compare.backends import with_dtype_of_b
from pages.widgets.shared import resources, sources
from pages.widgets.shared.runner import PageResults, run_key

PAGE = "03-tall-notice"
BOX = "6"
"""The one that differs: selected, so that both texts are on the screen."""
OWN = {"preset": "base", "dtype": "bfloat16", "attention": "eager", "dtype_b": "float32"}
"""Its settings, `data.samples.record.EXAMPLE_SETTINGS`."""
WORDS = (
    "An example: A ran in bfloat16, B in float32, and one character differs: A reads 21-30, B 21:30, as the "
    "page says. In float32 both read the same."
)


def first() -> dict[str, Any]:
    """Give what a new session shows: the example, if it is recorded for the settings of this server."""
    return {"page": PAGE, "box": BOX, "example": True, **OWN} if results() else {}


def results() -> PageResults | None:
    """Give the readings that come with the samples; no run of anybody takes their place.

    None where the example is not shown, or is not recorded for the settings of this server.
    """
    pages = sources.samples()
    if PAGE not in pages.keys:
        return None
    try:
        own = {name: each for name, each in OWN.items() if name != "dtype_b"}
        settings = with_dtype_of_b(settings_of(asdict(resources.base_settings()) | own), OWN["dtype_b"])
        page = pages.take(pages.position(PAGE))
        request = settings.request(page.path, page.name)
        found = resources.shipped(run_key(settings, request), settings, request)
    except DsocrError:  # said where the settings or the page are drawn
        return None
    if found is None or found.verdict != "differs":
        return None
    return PageResults(found, SIDES, found.recorded_at or "")


def forget() -> None:
    """Show the page like any other from now on: the reader has chosen, or runs it again."""
    put("example", False)


def leave_with_its_page() -> None:
    """Back to the usual settings once another page is chosen; before the widgets are drawn."""
    if not value("example"):
        return
    if value("page") != PAGE or value("source") != "Sample":
        leave()
        return
    if any(value(name) != of_example for name, of_example in (usual() | OWN).items()):
        forget()


def draw() -> None:
    """The line that says what one looks at, and the button to the same page without a difference."""
    if not value("example"):
        return
    words, button = st.columns([4, 1.5], vertical_alignment="center")
    words.caption(WORDS)
    button.button("Show it in float32", key="example clean", on_click=leave, width="stretch")


def leave() -> None:
    """Back to the usual settings; a callback, too."""
    forget()
    for name in OWN:
        put(name, usual().get(name, ""))

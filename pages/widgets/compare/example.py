"""Example that Compare opens on: a recorded page on which A and B differ, and why.

Under settings that are not the usual ones; they go with the page, so that nobody's own pages are read so.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.parity_records import Cause
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings, settings_of
from pages.widgets.compare.address import put, usual, value
from pages.widgets.compare.backends import with_dtype_of_b
from pages.widgets.shared import resources, sources
from pages.widgets.shared.runner import PageResults, run_key

PAGE = "03-tall-notice"
BOX = "6"
"""Box that differs: selected, so that both texts are shown."""
OWN = {"preset": "base", "dtype": "bfloat16", "attention": "eager", "dtype_b": "float32"}
"""Its run's settings, `data.samples.record.EXAMPLE_SETTINGS`."""
CAUSE = Cause("reproduced", "dtype (A bfloat16, B float32): in float32 A reads exactly what B reads")
"""Shown by `tests.pages.test_compare_example`, which reads the page with A in float32."""


def settings() -> Settings:
    """The settings of the example on this server. Raises DsocrError."""
    own = {name: each for name, each in OWN.items() if name != "dtype_b"}
    return with_dtype_of_b(settings_of(asdict(resources.base_settings()) | own), OWN["dtype_b"])


def first() -> dict[str, Any]:
    """First page of a new session: the example, if it is recorded for the settings of this server."""
    return {"page": PAGE, "box": BOX, "example": True, **OWN} if results() else {}


def results() -> PageResults | None:
    """The readings that come with the samples; no later run takes their place.

    None where they are not recorded for the settings of this server.
    """
    pages = sources.samples()
    if PAGE not in pages.keys:
        return None
    try:
        here, page = settings(), pages.take(pages.position(PAGE))
        request = here.request(page.path, page.name)
        found = resources.shipped(run_key(here, request), here, request)
    except DsocrError:  # said where the settings or the page are drawn
        return None
    if found is None or found.verdict != "differs":
        return None
    return PageResults(found, SIDES, found.recorded_at or "")


def leave_with_its_page() -> None:
    """Back to the usual settings once another page is chosen; before the widgets are drawn."""
    if not value("example"):
        return
    if value("page") != PAGE or value("source") != "Sample":
        leave()
    elif any(value(name) != of_example for name, of_example in (usual() | OWN).items()):
        put("example", False)


def draw() -> None:
    """The button to the same page under the usual settings."""
    if value("example"):
        st.button("Usual settings", key="example clean", on_click=leave, width="content",
                  help="This example reads the page in bfloat16 as A.")  # fmt: skip


def leave() -> None:
    """Back to the usual settings; a callback, too."""
    put("example", False)
    for name in OWN:
        put(name, usual().get(name, ""))

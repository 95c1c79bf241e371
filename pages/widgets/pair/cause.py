"""The tab Cause: what explains the differences, the settings that differ, the first layer that differs."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.widgets.pair import details
from pages.widgets.pair.shown import PairView
from pages.widgets.shared import table
from pages.widgets.shared.messages import plain


def draw(shown: PairView, layers: Callable[[], None], why: str = "") -> None:
    """Draw it; `layers` draws the trace of the page, `why` is the command that tries other settings on A."""
    report = shown.report
    if report is None:
        st.caption("Two results are needed. Run both sides.")
    elif not shown.causes:
        st.caption("Nothing to explain." if not shown.differing else "No cause is known.")
    for cause in shown.causes:
        likely = "" if cause.name == "reproduced" else "Likely: "
        st.markdown(f"- {likely}{plain(cause.words)}.")
    if report is not None and (unequal := [line for line in report.inputs if line.unequal]):
        st.caption("Settings that differ and affect the result:")
        table.draw(details.input_table(unequal), details.INPUTS)
    if why:
        st.caption("Find the cause (tries up to 60 settings on A):")
        st.code(why, language="bash", wrap_lines=True)
    layers()

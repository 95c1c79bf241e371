"""The tabs under the viewer: what differs on the page shown, and the review as a whole."""

from __future__ import annotations

import streamlit as st

from dsocr_core.base.formatting import plural, significant
from dsocr_core.review.page import KINDS, Difference
from pages.widgets.components.document import Block, show_columns
from pages.widgets.pair import tabs, text
from pages.widgets.pair.viewer import clicked
from pages.widgets.review import summary
from pages.widgets.review.address import key
from pages.widgets.review.view import PageShown
from pages.widgets.shared import figure, layers_tab
from pages.widgets.shared.messages import plain

_TIMINGS = "This page, one run of each side (n = 1). Vision lies inside prefill. All pages: Whole review."


def draw(shown: PageShown) -> None:
    """Draw the tabs; only the open one is computed."""
    drawers = {
        "Differences": lambda: _differences(shown),
        "Text": lambda: text.draw(shown),
        "Boxes": lambda: tabs.draw_boxes(shown),
        "Tokens": lambda: tabs.draw_tokens(shown),
        "Layers": lambda: layers_tab.draw_recorded(
            shown.comparison,
            "review layers",
            "Compare has the button; `dsocr trace PAGE --save` does the same.",
        ),
        "Inputs": lambda: tabs.draw_inputs(shown),
        "Timings": lambda: tabs.draw_timings(shown, _TIMINGS),
        "Whole review": lambda: summary.draw(shown),
    }
    figure.tabs(drawers, key("tab"))


# --- Differences ----------------------------------------------------------------------------------


def _differences(shown: PageShown) -> None:
    page = shown.page
    found = [
        Block("item", f"{KINDS[item.kind]}: {item.words}{_evidence(item)}", box=shown.row_of_difference(item))
        for item in page.differences
    ]
    hints = [Block("item", hint.words) for hint in page.hints]
    title = f"{plural(len(found), 'difference')}, gravest first" if found else "No differences"
    agree = [Block("paragraph", "both sides agree")]
    no_hint = [Block("paragraph", "none found" if found else "nothing to explain")]
    columns = [(title, found or agree), ("Likely cause", hints or no_hint)]
    show_columns(
        "review differences", columns, shown.selected, lambda: shown.select(clicked("review differences"))
    )
    parts = ", ".join(f"{name} {significant(part)}" for name, part in page.parts.items())
    st.caption(plain(f"Score {significant(page.score)}{f' = {parts}' if parts else ''}"))


def _evidence(item: Difference) -> str:
    iou = item.evidence.get("iou")
    return f", IoU {iou:.3g}" if isinstance(iou, float) else ""

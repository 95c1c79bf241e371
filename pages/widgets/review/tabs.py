"""The tabs under the viewer: what differs on the page shown, and the review as a whole."""

from __future__ import annotations

from dsocr_core.base.formatting import plural
from dsocr_core.reading.parity_records import Difference
from pages.widgets.components.document import Block, show_columns
from pages.widgets.pair import tabs, text
from pages.widgets.pair.viewer import clicked
from pages.widgets.review import summary
from pages.widgets.review.address import key
from pages.widgets.review.view import PageShown
from pages.widgets.shared import figure, layers_tab

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
        Block("item", f"{item.sentence}{_evidence(item)}", box=shown.row_of_difference(item))
        for item in page.differences
    ]
    causes = [Block("item", cause.words) for cause in page.causes]
    sure = any(cause.name == "reproduced" for cause in page.causes)
    title = f"{plural(len(found), 'difference')}, worst first" if found else "No differences"
    agree = [Block("paragraph", "both sides agree")]
    no_cause = [Block("paragraph", "none found" if found else "nothing to explain")]
    columns = [(title, found or agree), ("Cause" if sure else "Likely cause", causes or no_cause)]
    show_columns(
        "review differences", columns, shown.selected, lambda: shown.select(clicked("review differences"))
    )


def _evidence(item: Difference) -> str:
    iou = item.evidence.get("iou")
    return f", IoU {iou:.3g}" if isinstance(iou, float) else ""

"""The tabs under the viewer: what differs on the page shown, and the review as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.words import plural, significant
from dsocr_core.reading.records import SIDES
from dsocr_core.reading.text_blocks import Block
from dsocr_core.review.accuracy import accuracy, page_truth
from dsocr_core.review.page import KINDS, Difference
from pages.widgets.components.document import show_columns
from pages.widgets.pair import tabs, text
from pages.widgets.pair.viewer import clicked
from pages.widgets.review import summary
from pages.widgets.review.address import key, value
from pages.widgets.review.view import PageShown
from pages.widgets.shared import figure, layers_tab, resources, table
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.sources import typed_path
from pages.widgets.shared.table import Column

if TYPE_CHECKING:
    from dsocr_core.review.accuracy import Truth

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
        "Accuracy": lambda: _accuracy(shown),
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


# --- Accuracy -------------------------------------------------------------------------------------


def _accuracy(shown: PageShown) -> None:
    st.text_input(
        "More ground truth", key=key("truth"), placeholder="path of a JSON file",
        help="As data/samples/ground_truth.json or as OmniDocBench writes it; the samples have theirs.",
    )  # fmt: skip
    try:
        path = typed_path(value("truth"), resources.allowed_roots()) if value("truth").strip() else None
        truth = resources.truth(path)
        _accuracies(shown, truth, str(path or ""))
    except DsocrError as error:
        show_error(error)


def _accuracies(shown: PageShown, truth: Truth, path: str) -> None:
    of_page = page_truth(truth, shown.page)
    if of_page is None:
        st.caption("This page has no ground truth (it is found by the page's name and size).")
    else:
        here = {name: accuracy(side, of_page) for name, side in (("A", shown.page.a), ("B", shown.page.b))}
        st.caption(f"This page, against {plural(len(of_page.blocks), 'true block')}:")
        _draw_accuracy({name: vars(one) if one else {} for name, one in here.items()})
    means = resources.mean_accuracy(shown.review, shown.review.key, truth, path)
    counted = {side_letter(side): means[side] for side in SIDES}
    if any(values["pages"] for values in counted.values()):
        pages = ", ".join(f"{name} {int(values['pages'] or 0):,}" for name, values in counted.items())
        st.caption(f"Means over the pages with a ground truth ({pages}):")
        _draw_accuracy(counted)


_ACCURACY = {
    "side": Column("side"), "box_f1": Column("box F1", "", "At IoU 0.75 and equal label."),
    "character_error_rate": Column("character error rate", "share"),
    "order_distance": Column("reading order", "share", "Edits per block."),
}  # fmt: skip


def _draw_accuracy(sides: dict[str, dict[str, float | None]]) -> None:
    """Three measures of each side; "not measured" where there is nothing to count."""
    frame = pd.DataFrame([{"side": side, **values} for side, values in sides.items()])
    table.draw(frame.reindex(columns=list(_ACCURACY)), _ACCURACY)

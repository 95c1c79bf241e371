"""The table of boxes of two results, linked with the viewer."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from dsocr_core.words import percent, plural
from pages.widgets.pair.shown import Shown
from pages.widgets.pair.viewer import clicked
from pages.widgets.shared import reading
from pages.widgets.shared.figure import csv_button
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.result_tables import Results, box_table

TABLE = "box table"
"""The session's key of the table, whose selection is a row."""


def table_height(rows: int) -> int | Literal["content"]:
    """Small tables whole, large ones scrolling."""
    return "content" if rows <= 12 else 420


def draw(shown: Shown) -> None:
    """Draw the table, over it what could not be read; a click selects the row."""
    _malformed(shown.results)
    report, selected = shown.report, shown.selected
    table = box_table(shown.rows)
    if table.empty:
        st.caption("No boxes on this page. The markdown prompt asks for boxes; the others may not.")
        return
    st.dataframe(
        table,
        key=TABLE,
        hide_index=True,
        height=table_height(len(table)),
        on_select=lambda: shown.select(clicked(TABLE)),
        selection_mode="single-row",
        placeholder="",
        selection_default={"selection": {"rows": [] if selected is None else [selected]}},
        column_config={
            "#": st.column_config.NumberColumn(width=45),
            "IoU": st.column_config.NumberColumn(format="%.3f"),
            "shift (%)": st.column_config.NumberColumn(format="%.2f"),
        },
    )
    note = plural(len(table), "row")
    if report is not None:
        most = max(report.boxes_a, report.boxes_b)
        note = (
            f"{report.boxes_matched} of {plural(most, 'box', 'boxes')} paired, "
            f"mean shift {percent(report.mean_coordinate_difference_percent)} of the image side "
            f"(n = {report.boxes_matched})"
        )
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.caption(note)
    with right:
        csv_button("CSV", "boxes", table)


def _malformed(results: Results) -> None:
    odd = [
        (f"{side_letter(side)}: {label}", why)
        for side, result in results.items()
        for label, why in reading.malformed(result)
    ]
    if odd:
        with st.expander(f"{plural(len(odd), 'span')} could not be read"):
            st.dataframe(
                {"span": [span for span, _ in odd], "reason": [why for _, why in odd]}, hide_index=True
            )

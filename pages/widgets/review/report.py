"""The review as a whole: the report to take away, figures of each stage, settings of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.models.family import all_stages
from dsocr_core.reading.margins import count_ties
from dsocr_core.review.document import speed_words
from dsocr_core.review.html import html_report
from dsocr_core.runs.statistics import outcome_words
from pages.widgets.shared import table
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

if TYPE_CHECKING:
    from dsocr_core.review.review import Review


def draw(review: Review) -> None:
    """The button of the report; its files are made when they are asked for, outside of the session."""
    with st.popover("Report", width="content", key="review report"):
        words = st.text_area(
            "Summary for the report", key=f"review words of {review.key}", persist_state="session",
            placeholder="what you conclude", max_chars=4000, height=68,
        )  # fmt: skip
        stem = f"review-{review.key.replace('~', '-before-').replace(':', '-')}"
        for name, end, mime, make in (
            ("Report as HTML", "html", "text/html", lambda: html_report(review, words=words.strip())),
            ("Verdicts as CSV", "verdicts.csv", "text/csv", review.verdicts.to_csv),
        ):
            st.download_button(
                name, make, f"{stem}.{end}", mime, on_click="ignore", icon=":material/download:",
                key=f"review download {end}", width="stretch",
            )  # fmt: skip


_STAGES = {
    "stage": Column("stage"), "pages": Column("pages", "count"), "runs_a": Column("runs like A", "count"),
    "runs_b": Column("like B", "count"), "median_a": Column("A median", "ms"),
    "median_b": Column("B median", "ms"), "ratio": Column("B / A", ""), "low": Column("95 % from", ""),
    "high": Column("to", ""), "verdict": Column("B is", outcome_words), "why": Column("why"),
}  # fmt: skip


def details(review: Review) -> None:
    """Speed of each stage and the settings, drawn when they are opened."""
    more = st.expander("Stages and settings of both sides", key="review details", on_change="rerun")
    if not more.open:
        return
    with more:
        st.caption(plain(f"{speed_words(review)}. Speeds are those of whole pages."))
        if finding := count_ties(page.report for page in review.pages).finding:
            st.warning(plain(finding), icon=":material/rule:")
        stages = review.stages()
        if len(stages):
            order = {stage.value: rank for rank, stage in enumerate(all_stages())}
            stages = stages.sort_values("stage", key=lambda names: names.map(order), kind="stable")
            table.draw(stages, _STAGES, "–")
        settings = review.settings()
        differing = settings[~settings["equal"].astype(bool)]
        every = st.toggle(f"All {len(settings)} settings, also equal ones", key="review every setting")
        shown = (settings if every else differing).drop(columns="equal")
        table.draw(shown.rename(columns={"a": "A", "b": "B"}), missing="not recorded")

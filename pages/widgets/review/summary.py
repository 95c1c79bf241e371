"""The review as a whole: what came out, figures per stage, settings of both sides, reports to take away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import moment
from dsocr_core.models.family import all_stages
from dsocr_core.reading.margins import count_ties
from dsocr_core.reading.parity_records import KINDS
from dsocr_core.review.document import headline
from dsocr_core.review.html import html_report
from dsocr_core.review.queue import DECISIONS, decision
from dsocr_core.runs.statistics import outcome_words
from pages.widgets.shared import table
from pages.widgets.shared.messages import plain
from pages.widgets.shared.strip import VERDICTS, verdict_words
from pages.widgets.shared.table import Column

if TYPE_CHECKING:
    from dsocr_core.review.queue import Given
    from dsocr_core.review.review import Review
    from dsocr_core.review.verdicts import Judgement
    from pages.widgets.review.view import PageShown


def draw(shown: PageShown) -> None:
    review = shown.review
    given = review.verdicts.current()
    st.markdown(f"**{plain(headline(review))}**")
    st.caption(plain(f"A {review.a.name}, B {review.b.name}. Speeds are those of whole pages."))
    if finding := count_ties(page.report for page in review.pages).finding:
        st.warning(plain(finding), icon=":material/rule:")
    _take_away(review)
    left, right = st.columns([1, 2.2])
    with left:
        table.draw(outcome_table(review, given))
    with right:
        stages = review.stages()
        if stages.empty:
            st.caption("No page has times on both sides.")
        else:
            table.draw(stage_table(stages), _STAGES, "–")
    _rows(review)
    _settings(review)


def outcome_table(review: Review, given: Given) -> pd.DataFrame:
    """Pages by verdict of parity, by kind of difference and by the reviewers' decision."""
    reviewed = [decision(page.name, given) for page in review.pages]
    parity = [verdict_words(page.verdict).words for page in review.pages if not page.in_one_run]
    rows: list[tuple[str, int]] = [
        ("pages", len(review.pages)),
        *((f"parity: {words.words}", parity.count(words.words)) for words in VERDICTS.values()),
        *((words, sum(kind in page.kinds for page in review.pages)) for kind, words in KINDS.items()),
        *((f"verdict: {word}", reviewed.count(word)) for word in DECISIONS),
    ]
    return pd.DataFrame([row for row in rows if row[1] or row[0].startswith(("pages", "parity", "verdict"))],
                        columns=["", "pages"])  # fmt: skip


_STAGES = {
    "stage": Column("stage"), "pages": Column("pages", "count"), "runs_a": Column("runs like A", "count"),
    "runs_b": Column("like B", "count"), "median_a": Column("A median", "ms"),
    "median_b": Column("B median", "ms"), "ratio": Column("B / A", ""), "low": Column("95 % from", ""),
    "high": Column("to", ""), "verdict": Column("B is", outcome_words), "why": Column("why"),
}  # fmt: skip


def stage_table(stages: pd.DataFrame) -> pd.DataFrame:
    """`Review.stages` in the order of running."""
    order = {stage.value: rank for rank, stage in enumerate(all_stages())}
    return stages.sort_values("stage", key=lambda names: names.map(order), kind="stable")


# --- out -----------------------------------------------------------------------------------


def _take_away(review: Review) -> None:
    """Files are made when they are asked for, outside of the session."""
    own = st.text_area(
        "Words at the head of the report", key=f"review words of {review.key}", persist_state="session",
        placeholder="what you conclude, before the figures", max_chars=4000, height=68,
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center"):
        for words, name, mime, make in (
            (
                "Report as HTML",
                "html",
                "text/html",
                lambda: html_report(review, words=own.strip()),
            ),
            ("Verdicts as CSV", "verdicts.csv", "text/csv", review.verdicts.to_csv),
        ):
            st.download_button(
                words, make, f"review-{review.key.replace('~', '-before-').replace(':', '-')}.{name}", mime,
                on_click="ignore", icon=":material/download:", key=f"review download {name}",
            )  # fmt: skip


# --- rows -----------------------------------------------------------------------------------------


def _rows(review: Review) -> None:
    rows = review.verdicts.rows()
    if not rows:
        return
    with st.expander(f"Every verdict ever given ({len(rows):,})"):
        fields = ("reviewer", "page", "verdict", "cause", "comment")
        said = [
            (moment(row.time), row.reviewer, row.page, _verdict(row), row.label, row.comment)
            for row in reversed(rows)
        ]
        frame = pd.DataFrame(said, columns=["time", *fields])
        table.draw(frame, most=12)


def _verdict(row: Judgement) -> str:
    return row.verdict or ("taken back" if row.undoes else "comment")


def _settings(review: Review) -> None:
    settings = review.settings()
    differing = settings[~settings["equal"].astype(bool)]
    with st.expander(f"Settings and environment: {len(differing)} of {len(settings)} values differ"):
        every = st.toggle("Show what is the same, too", key="review every setting")
        shown = (settings if every else differing).drop(columns="equal")
        table.draw(shown.rename(columns={"a": "A", "b": "B"}), missing="not recorded")

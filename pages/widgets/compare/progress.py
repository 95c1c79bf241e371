"""A run as it happens: stages with their times, streamed text, who is waited for, Cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from dsocr_core.base.formatting import duration, plural, significant
from dsocr_core.reading.records import Side
from pages.widgets.shared.job import JobView
from pages.widgets.shared.run_job import ReadJob, SideView
from pages.widgets.shared.stages import colour
from pages.widgets.streamlit_mends import rerun_fragment, rerun_page

POLL_S = 0.5
_SHORT = 600
"""Characters of a partial text that is shown whole."""


def draw(job: ReadJob, labels: Mapping[Side, str]) -> None:
    """The panel of a running job, its sides by their labels; when the job ends it reruns the whole page."""
    st.fragment(_panel, run_every=POLL_S)(job, labels)


def _panel(job: ReadJob, labels: Mapping[Side, str]) -> None:
    view, sides = job.view(), job.side_views()
    if view.state != "running":
        rerun_page()
    with st.container(border=True, gap="xsmall", key="progress"):
        left, right = st.columns([6, 1], vertical_alignment="center")
        left.html(
            f"<div class='dsocr-headline'><i></i>{escape(headline(view, sides, job.request.name))}</div>"
        )
        if right.button("Cancel", key="cancel", width="stretch", disabled=view.cancelling):
            job.cancel()
            rerun_fragment()
        st.html("".join(side_line(side, labels[side.side]) for side in sides))
        tail = next((side.text_tail for side in sides if side.state == "running" and side.text_tail), "")
        if tail:
            st.code(tail_lines(tail), language=None, wrap_lines=True, height=84)


def tail_lines(text: str) -> str:
    """The last lines of a streamed text."""
    return "\n".join(text[-600:].splitlines()[-3:])


def headline(view: JobView, sides: Sequence[SideView], name: str) -> str:
    """Say what happens now, in one line."""
    if view.cancelling:
        return f"Cancelling {name}…"
    waiting = next((side for side in sides if side.state == "waiting"), None)
    if waiting:
        return waiting.waiting_for[:1].upper() + waiting.waiting_for[1:]
    return f"Reading {name}, {duration(view.seconds * 1000)}"


def decode_words(side: SideView) -> str:
    """Say how far decode is: tokens and their rate; characters where tokens are not known."""
    if not side.tokens:
        return plural(side.characters, "character") if side.characters else ""
    rate = side.tokens / side.decode_s if side.decode_s > 0 else 0.0
    return plural(side.tokens, "token") + (f", {significant(rate)} tokens/s" if rate else "")


def show_partial(job: ReadJob, labels: Mapping[Side, str]) -> None:
    """Show what a cancelled run had read, marked as a part."""
    for side, text in job.partial_texts().items():
        with st.expander(f"Partial text of {labels[side]}, cancelled after {len(text):,} characters"):
            st.code(text, language=None, wrap_lines=True, height=240 if len(text) > _SHORT else "content")


def side_line(side: SideView, label: str) -> str:
    """One side as HTML made of our own words and escaped values."""
    if side.stages:
        chips = "".join(
            f"<span class='dsocr-chip{' dsocr-now' if stage.running else ''}'>"
            f"<i style='background:{colour(stage.stage)}'></i>{escape(stage.stage.value)} "
            f"<b>{escape(duration(stage.milliseconds))}</b></span>"
            for stage in side.stages
        )
    else:
        words = {
            "queued": "queued",
            "waiting": side.waiting_for,
            "loading": f"loading, {duration(side.seconds * 1000)}",
            "running": f"running, {duration(side.seconds * 1000)}",
            "failed": side.error,
            "done": "done",
        }[side.state]
        chips = f"<span class='dsocr-chip'>{escape(words)}</span>"
    note = decode_words(side)
    return (
        f"<div class='dsocr-backend'><b class='dsocr-name'>{escape(label)}</b>{chips}"
        f"<span class='dsocr-note'>{escape(note)}</span></div>"
    )

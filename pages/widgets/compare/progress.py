"""A run as it happens: stages with their times, streamed text, who is waited for, Cancel."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dsocr_core.base.formatting import duration, plural, significant
from dsocr_core.engine import preparing
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Side
from pages.widgets.shared import job as jobs
from pages.widgets.shared.labels import colour
from pages.widgets.shared.runner import ReadJob, SideWatch

_SHORT = 600
"""Characters of a partial text that is shown whole."""


def draw(job: ReadJob, labels: Mapping[Side, str]) -> None:
    """The panel of a running job, its sides by their labels."""

    def sides(job: ReadJob, place: DeltaGenerator) -> None:
        place.html(f"<div class='dsocr-headline'><i></i>{escape(headline(job))}</div>")
        st.html("".join(side_line(watch, labels[side]) for side, watch in job.watches.items()))
        running = (watch.tail() for watch in job.watches.values() if watch.state == "running")
        if tail := next(filter(None, running), ""):
            st.code("\n".join(tail.splitlines()[-3:]), language=None, wrap_lines=True, height=84)

    jobs.panel(job, "progress", sides)


def headline(job: ReadJob) -> str:
    """Say what happens now, in one line."""
    if job.cancelling:
        return f"Cancelling {job.request.name}…"
    held_up = (watch.waiting_for for watch in job.watches.values() if watch.state == "waiting")
    waiting = next(held_up, preparing.words())
    return waiting[:1].upper() + waiting[1:] or f"Reading {job.request.name}, {duration(job.took_ms)}"


def show_partial(job: ReadJob, labels: Mapping[Side, str]) -> None:
    """Show what a cancelled run had read, marked as a part."""
    for side, text in job.partial_texts().items():
        with st.expander(f"Partial text of {labels[side]}, cancelled after {len(text):,} characters"):
            st.code(text, language=None, wrap_lines=True, height=240 if len(text) > _SHORT else "content")


def side_line(watch: SideWatch, label: str) -> str:
    """One side as HTML made of our own words and escaped values."""
    stages, state = watch.stages(), watch.state
    chips = [
        f"<span class='dsocr-chip{' dsocr-now' * running}'><i style='background:{colour(stage)}'></i>"
        f"{escape(stage)} <b>{escape(duration(spent))}</b></span>"
        for stage, spent, running in stages
    ]
    if not stages:
        words = {"waiting": watch.waiting_for, "failed": watch.error}.get(state, state)
        took = f", {duration(watch.took_ms)}" if state in ("loading", "running") else ""
        chips = [f"<span class='dsocr-chip'>{escape(words + took)}</span>"]
    decode = next((spent for stage, spent, _ in stages if stage == Stage.DECODE), 0.0)
    note = plural(watch.characters, "character") if watch.characters else ""
    if watch.tokens:
        rate = f", {significant(1000 * watch.tokens / decode)} tokens/s" if decode else ""
        note = plural(watch.tokens, "token") + rate
    return (
        f"<div class='dsocr-backend'><b>{escape(label)}</b>{''.join(chips)}"
        f"<span class='dsocr-note'>{escape(note)}</span></div>"
    )

"""Head of every page: its name, the question that it answers, and how to use it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.widgets.components.page import watch_page
from pages.widgets.shared import url_state


@dataclass(frozen=True)
class Heading:
    """`answers` is one sentence; `use` are steps: `key` and *button* stand out."""

    name: str
    answers: str
    use: tuple[str, ...]


HEADINGS = {
    "compare": Heading(
        "Compare",
        "One page read by two implementations of DeepSeek-OCR: do they agree, and where not?",
        (
            "Choose a page on the left, then *Run both*. What was read before is shown at once.",
            "The strip gives the verdict: identical, within tolerance, differs or not comparable.",
            "`d` jumps to the next difference; a click selects a box on both sides; `?` in the viewer lists "
            "all keys.",
            "The tabs below hold texts, boxes, tokens, inputs and times. The address links to what you see.",
        ),
    ),
    "review": Heading(
        "Review",
        "What differs between two recorded runs, page by page, worst first, and why?",
        (
            "Choose A, what was before, and B, what came after: another run, or A's other backend.",
            "The queue has the gravest page first; `j` and `k` go through it.",
            "Type your name once (`r`), then judge: `s` same, `a` acceptable, `w` wrong, `u` unsure.",
            "*Whole review* has the sums, and the report as HTML, JSON or JUnit.",
        ),
    ),
    "timing": Heading(
        "Timing",
        "What became slower, and is it real?",
        (
            "The sentence is about the newest two commits of a card; choose others beside it.",
            "A row (by keyboard: Shift and Space) opens its two runs: interval, settings, kernels, commands.",
            "Faster and slower are said only where the 95 % interval over several runs lies beyond 2 %.",
            "*Stages of each run* has absolute times; *Two runs side by side* takes any two.",
            "*Kernels* has what Nsight Systems, Nsight Compute and torch recorded, of one run or of two.",
        ),
    ),
    "runs": Heading(
        "Runs",
        "Which runs are there, how fast were they, and how do they differ?",
        (
            "Choose one run to see all of it, two or more to see how they differ.",
            "*Pin as baseline* sets the run that all others are compared with: faster and slower are only "
            "said beyond the neutral band.",
            "The buttons open the chosen runs on Timing, Review, FLOPs or Compare.",
            "The table's own tools, at its upper right, sort, search, hide and show columns.",
        ),
    ),
    "flops": Heading(
        "FLOPs and bounds",
        "Is the arithmetic exact, and what does each stage lose to its lower bound?",
        (
            "The map has all runs: the time that each stage takes above its lower bound, or the gap between "
            "FLOPs by arithmetic and FLOPs counted.",
            "A click on a cell opens its run below, at that stage; the address holds both.",
            "*What if* gives the cost of a page of any size.",
            "Hover over a column's name to read what it counts.",
        ),
    ),
}
"""By the name of the page's script."""


def draw(page: str) -> DeltaGenerator:
    """The style sheet, then one line: the name, the sentence, and the way to use the page behind a `?`.

    Returns a place in that line.
    """
    st.html(Path(__file__).with_name("style.css"))
    with st.container(key="page"):
        taken = st.session_state.get(f"{page} taken", 0)
        watch_page(f"{page} back", partial(url_state.go_back, page), taken)
    heading = HEADINGS[page]
    with st.container(horizontal=True, vertical_alignment="center", key="heading"):
        st.html(
            f"<div class='dsocr-heading'><h1>{escape(heading.name)}</h1>"
            f"<span>{escape(heading.answers)}</span></div>",
            width="stretch",
        )
        place = st.container(key=f"beside {page}")
        with st.popover("?", key="how to use", help="How to use this page"):
            st.html(
                f"<ul class='dsocr-use'>{''.join(f'<li>{_html(step)}</li>' for step in heading.use)}</ul>"
            )
    return place


def _html(step: str) -> str:
    """Our own words: `key` and *button* as HTML."""
    marked = re.sub(r"`([^`]+)`", r"<kbd>\1</kbd>", escape(step))
    return re.sub(r"\*([^*]+)\*", r"<b>\1</b>", marked)

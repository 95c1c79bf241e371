"""A running job on a page: what it is at, how far it is, and its Cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.runtime import get_instance
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dsocr_core.base.formatting import duration
from pages.widgets.shared.job import Job
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.streamlit_mends import rerun_fragment, rerun_page

POLL_S = 0.4


def draw(job: Job[Any], key: str, note: str = "") -> None:
    """Show it until it is over, then run the page again; `note` stands before what it says."""
    st.fragment(_panel, run_every=POLL_S)(job, key, note)


def _panel(job: Job[Any], key: str, note: str) -> None:
    view = job.view()
    if view.state != "running":
        rerun_page()
    with st.container(border=True, gap="xsmall", key=f"{key} progress"):
        left, right = st.columns([6, 1], vertical_alignment="center")
        rest = view.seconds_left
        left_words = f", about {duration(1000 * rest)} left" if rest is not None else ""
        words = "Cancelling" if view.cancelling else f"{note}{view.words}"
        left.progress(view.done, text=plain(f"{words}, {duration(1000 * view.seconds)}{left_words}"))
        if right.button("Cancel", key=f"cancel {key}", width="stretch", disabled=view.cancelling):
            job.cancel()
            rerun_fragment()


def ended(job: Job[Any], cancelled: str) -> str:
    """Show why a job that is over has no result, where it has none; how long it took."""
    view = job.view()
    if view.error:
        show_error(view.error)
    elif view.state == "cancelled":
        st.caption(f"Cancelled: {cancelled}.")
    return duration(1000 * view.seconds)


def open_tab() -> Callable[[], bool]:
    """Make what tells, from any thread, whether the browser tab that is drawn now is still open."""
    context = get_script_run_ctx()
    if context is None:
        return lambda: True
    runtime, session = get_instance(), context.session_id
    return lambda: bool(runtime.is_active_session(session))

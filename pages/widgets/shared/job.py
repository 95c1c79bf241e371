"""Work that takes its time, on a thread of its own, and its panel on a page: how far it is, and Cancel.

The thread must not touch Streamlit; a page reads the job's plain attributes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime import get_instance
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dsocr_core.base.errors import Cancelled, DsocrError, unforeseen
from dsocr_core.base.formatting import duration
from pages.widgets.shared.messages import plain
from pages.widgets.streamlit_mends import rerun_page

_POLL_S = 0.4
_MISSES = 2
"""A connection that is made anew at once costs nothing."""

T = TypeVar("T")
J = TypeVar("J", bound="Job[Any]")


class Job(Generic[T]):
    """One piece of work. `about` is what it is of, `result` what it gave once it is done.

    The work is given the job: it looks at `token` for a wish to stop, tells how far it is with `say`, and may
    raise Cancelled, and DsocrError for what a user can put right.
    """

    _numbers = itertools.count(1)

    def __init__(self, name: str, about: object, work: Callable[[Any], T]) -> None:
        self.number, self.about, self.token = next(self._numbers), about, threading.Event()
        self.result: T | None = None
        self.state: Literal["running", "done", "failed", "cancelled"] = "running"
        self.error, self.words, self.done = "", "loading", 0.0
        """Why it failed; what it is at; its share of the whole, 0 to 1."""
        self.beside: Callable[[], str] = str
        """Gives what is said beside that."""
        self._work = work
        self._began, self._ended = time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._run, name=f"{name} {self.number}", daemon=True)

    def start(self, wanted: Callable[[], bool] | None = None) -> None:
        """Begin; once `wanted` says no, twice in a row, the work is cancelled (its tab was closed)."""
        self._thread.start()
        if wanted is not None:
            threading.Thread(target=self._watch, args=(wanted,), name="job watch", daemon=True).start()

    def _watch(self, wanted: Callable[[], bool]) -> None:
        missed = 0
        while self.running and missed < _MISSES:
            self.join(_POLL_S)
            missed = 0 if wanted() else missed + 1
        if self.running:
            self.cancel()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def cancel(self) -> None:
        """Ask the work to stop; how soon is up to what it does."""
        self.token.set()

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def cancelling(self) -> bool:
        return self.token.is_set() and self.running

    @property
    def took_ms(self) -> float:
        """The time so far, or in all."""
        return 1000 * ((self._ended or time.monotonic()) - self._began)

    def say(self, words: str, done: float | None = None) -> None:
        """Tell a page what the work is at, and how far it is."""
        self.words = words
        self.done = self.done if done is None else min(max(done, 0.0), 1.0)

    def _run(self) -> None:
        try:
            self.result = self._work(self)
            state: Literal["done", "failed", "cancelled"] = "done"
        except Cancelled:
            state = "cancelled"
        except DsocrError as problem:
            state, self.error = "failed", str(problem)
        except Exception as problem:  # noqa: BLE001 - a thread has nobody above it who would hear
            state, self.error = "failed", unforeseen(problem, self._thread.name)
        self._ended = time.monotonic()
        self.state = state


# --- on a page ------------------------------------------------------------------------------------


def panel(job: J, key: str, draw: Callable[[J, DeltaGenerator], None] | None = None) -> None:
    """Show a job until it is over, then run the page again; `draw` shows it beside its Cancel, and below."""
    st.fragment(_panel, run_every=_POLL_S)(job, key, draw or _bar)


def _panel(job: J, key: str, draw: Callable[[J, DeltaGenerator], None]) -> None:
    if not job.running:
        rerun_page()
    with st.container(border=True, gap="xsmall", key=key):
        left, right = st.columns([6, 1], vertical_alignment="center")
        right.button(
            "Cancel", key=f"{key} cancel", width="stretch", disabled=job.cancelling, on_click=job.cancel
        )
        draw(job, left)


def _bar(job: Job[Any], place: DeltaGenerator) -> None:
    rest = f", about {duration(job.took_ms * (1 / job.done - 1))} left" if job.done > 0.05 else ""
    words = "Cancelling" if job.cancelling else ", ".join(filter(None, (job.words, job.beside())))
    place.progress(job.done, text=plain(f"{words}, {duration(job.took_ms)}{rest}"))


def tab_watch() -> Callable[[], bool]:
    """Make what says, from any thread, whether the browser tab that is drawn now is still open."""
    context = get_script_run_ctx()
    if context is None:
        return lambda: True
    runtime, session = get_instance(), context.session_id
    return lambda: bool(runtime.is_active_session(session))

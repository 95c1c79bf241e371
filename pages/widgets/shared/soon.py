"""Things that are made beside a page, thumbnails say, and shown when they are there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future
from typing import TypeVar

import streamlit as st

from pages.widgets.shared import resources
from pages.widgets.streamlit_mends import rerun_page

T = TypeVar("T")
_MOST = 1000
_POLL_S = 0.7


def made(of: Hashable, make: Callable[[], T]) -> Future[T]:
    """Have it made once for all browser tabs; the newest thousand stay."""
    worker, known = resources.soon_made()
    if of not in known:
        known[of] = worker.submit(make)
        for old in list(known)[:-_MOST]:
            known.pop(old, None)
    return known[of]


def result(future: Future[T]) -> T | None:
    """The thing that was made; None before, and where it could not be."""
    return future.result() if future.done() and future.exception() is None else None


def redraw(so_far: Callable[[], object], pending: bool) -> None:
    """Run the page again when what is there of something pending is not what was drawn."""
    drawn = so_far()

    def look() -> None:
        if so_far() != drawn:
            rerun_page()

    if pending:
        st.fragment(look, run_every=_POLL_S)()


def redraw_made(waited: Collection[Future[T]]) -> None:
    """Run the page again when more of them are made."""

    def so_far() -> int:
        return sum(future.done() for future in waited)

    redraw(so_far, so_far() < len(waited))

"""Things that are made beside a page, thumbnails say, and shown when they are there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from concurrent.futures import Future
from typing import TypeVar

import streamlit as st

from pages.widgets.shared import resources

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
    """What is made; None before, and where it could not be."""
    return future.result() if future.done() and future.exception() is None else None


def draw(waited: Collection[Future[T]], drawn: Callable[[], None], always: bool = False) -> None:
    """Draw, and again until all that is waited for is made; `always` as long as the page stays as it is."""

    def again() -> None:
        drawn()
        if pending and not always and all(future.done() for future in waited):
            st.rerun()

    pending = not all(future.done() for future in waited)
    st.fragment(again, run_every=_POLL_S if pending or always else None)()

"""Mends in the browser on every page: Back within a page, and Tab out of a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pages.widgets.components.base import mount

_HERE = Path(__file__).parent


def watch_page(key: str, on_back: Callable[[], None], taken: int) -> None:
    """Mount it; draws nothing. The state `back` is {query: an address without its `?`, n}.

    `taken` is the n that the session has taken on last.
    """
    mount(_HERE, key, {"taken": taken}, on_back_change=on_back)

"""The browser's Back and Forward within a page, as an address to take on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pages.widgets.components.base import mount

_HERE = Path(__file__).parent


def watch_back(key: str, on_back: Callable[[], None]) -> None:
    """Mount it; draws nothing. The state `back` is {query: an address without its `?`, n}."""
    mount(_HERE, key, {}, on_back_change=on_back)

"""Mends in the browser on every page: Tab out of a table, and words typed while a page is redrawn."""

from __future__ import annotations

from pathlib import Path

from pages.widgets.components.base import mount

_HERE = Path(__file__).parent


def watch_page(key: str) -> None:
    """Mount it; draws nothing."""
    mount(_HERE, key, {})

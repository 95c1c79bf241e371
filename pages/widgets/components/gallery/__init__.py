"""Thumbnails to pick a page from."""

from __future__ import annotations

from pathlib import Path

from pages.widgets.components.base import mount

_HERE = Path(__file__).parent


def show_gallery(key: str, items: list[dict[str, str]], selected: str | None) -> str | None:
    """Items are {key, name, title, url}. Returns the key just picked, else None."""
    data = {"items": items, "selected": selected}
    result = mount(_HERE, key, data, on_picked_change=lambda: None)
    picked = result.picked
    return picked if isinstance(picked, str) and any(item["key"] == picked for item in items) else None

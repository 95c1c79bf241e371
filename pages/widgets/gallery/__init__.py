"""Thumbnails to pick a page from."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st


@cache
def _component() -> Any:
    here = Path(__file__).parent
    return st.components.v2.component(
        "dsocr_gallery",
        html=(here / "gallery.html").read_text("utf-8"),
        css=(here / "gallery.css").read_text("utf-8"),
        js=(here / "gallery.js").read_text("utf-8"),
    )


def show_gallery(key: str, items: list[dict[str, str]], selected: str | None) -> str | None:
    """Items are {key, name, title, url}. Returns the key just picked, else None."""
    result = _component()(key=key, data={"items": items, "selected": selected}, on_picked_change=lambda: None)
    picked = result.picked
    return picked if isinstance(picked, str) and any(item["key"] == picked for item in items) else None

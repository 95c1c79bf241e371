"""A grid of pages to pick one from, with what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from pages.widgets.components.base import mount

_HERE = Path(__file__).parent
PART = 50
"""There may be any number of pages: sent are the part with the page shown and its neighbours."""


def window(count: int, position: int, part: int = PART) -> range:
    """Positions that are sent."""
    start = max(0, max(position, 0) // part - 1) * part
    return range(start, min(count, start + 3 * part))


def show_gallery(
    key: str,
    label: str,
    count: int,
    position: int,
    items: Callable[[range], Sequence[dict[str, Any]]],
    on_pick: Callable[[str], None],
    part: int = PART,
) -> None:
    """Mount it; a callback takes the key of the page that was picked. `position` is -1 for none.

    `items` gives those of a range of positions: {key, name, title, words, tone and sign (of `shared.strip`),
    readings (of A and B, or nothing), verdict (a reviewer's word or ""), url ("" while it is not made)}.
    """
    shown = window(count, position, part)

    def take() -> None:
        picked = st.session_state[key].get("picked")
        if isinstance(picked, dict) and isinstance(name := picked.get("key"), str):
            on_pick(name)

    data = {
        "label": label, "first": shown.start, "count": count, "position": position,
        "items": list(items(shown)),
    }  # fmt: skip
    mount(_HERE, key, data, on_picked_change=take)

"""The queue of a review: its pages worst first, one line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pages.widgets.components.base import mount

_HERE = Path(__file__).parent
PART = 50
"""A review may have any number of pages: sent are the part with the page shown and its neighbours."""


def show_queue(
    key: str,
    count: int,
    position: int,
    lines: Callable[[range], Sequence[dict[str, Any]]],
    on_pick: Callable[[], None],
) -> None:
    """Mount the queue. A click reports a page's name as state `picked`.

    `lines` gives those of a range of positions: {name, words, tone and sign (of `shared.verdicts`), verdict
    (a reviewer's word or ""), title}.
    """
    start = max(0, max(position, 0) // PART - 1) * PART
    shown = range(start, min(count, start + 3 * PART))
    data = {"first": shown.start, "count": count, "position": position, "lines": list(lines(shown))}
    mount(_HERE, key, data, on_picked_change=on_pick)

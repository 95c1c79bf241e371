"""The viewer of a pair: the page with both sides' boxes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import streamlit as st

from dsocr_core.reading.markup import Box
from dsocr_core.reading.records import SIDES, Side
from pages.widgets.components.viewer import MODES, show_viewer
from pages.widgets.pair.shown import Pairing, Shown, changes, compared, label_colours, other_texts
from pages.widgets.shared import resources

PaneWords = Mapping[Side, Mapping[str, str]]
"""For each side the line over its pane, and a notice with a button where there is nothing to show."""


def draw(
    shown: Shown,
    image: Mapping[str, Any],
    panes: PaneWords,
    mode: tuple[str, Callable[[str], None]],
    said: str,
    **around: Any,
) -> Any:
    """Draw it; returns the sides of which the reader asked a run.

    `image` is `image_values`; `mode` the one to show, and what takes another; `said` is for screen readers.
    """
    key = f"{shown.prefix}viewer"

    def take_mode() -> None:
        if (chosen := st.session_state[key].get("mode")) in MODES:
            mode[1](chosen)

    return show_viewer(
        key,
        {
            "image": image,
            "sides": panes,
            "names": shown.names,
            "pairs": pair_values(shown.rows, shown.differing),
            "colours": label_colours(shown.rows),
            "mode": mode[0],
            "said": said,
            "selected": shown.selected,
            "divergence": _divergence(shown),
            **around,
        },
        on_selected=lambda: shown.select(clicked(key)),
        on_mode=take_mode,
    )


def image_values(
    subject: str, picture: resources.Picture, size: tuple[int, int], kind: str
) -> dict[str, Any]:
    """The picture of a page of `size` (width, height) pixels; `kind` names what asks for it."""
    return {
        "id": f"{subject}:{size[0]}x{size[1]}",
        "url": resources.picture_url(picture, kind),
        "width": size[0],
        "height": size[1],
    }


def clicked(key: str) -> int | None:
    """The row that a component reports, the viewer, a text or the table of boxes."""
    state: Any = st.session_state[key]
    if "selection" in state:
        rows = state["selection"]["rows"]
        row = rows[0] if rows else None
    else:
        row = (state.get("selected") or {}).get("row")
    return row if isinstance(row, int) else None


def _divergence(shown: Shown) -> dict[str, Any] | None:
    """Find where the tokens diverge, for the viewer to mark."""
    divergence = shown.report.first_divergence if shown.report else None
    if divergence is None:
        return None
    return {
        "a": None if divergence.box_a is None else shown.row_of(divergence.box_a, None),
        "b": None if divergence.box_b is None else shown.row_of(None, divergence.box_b),
        "words": f"diverges at token {divergence.index:,}",
    }


_CHARACTERS = 400_000
"""Limit of the texts of a page in the viewer; a page of letters has some thousand."""
_MOST_CHARACTERS = 20_000
"""Limit of one box of a page with few."""
_MOST_CHANGES = 4
"""Differences of one box that are named."""


def _box_values(box: Box | None, most: int) -> dict[str, Any] | None:
    if box is None:
        return None
    corners = {name: getattr(box, name) for name in ("x1", "y1", "x2", "y2")}
    return {"index": box.index, "label": box.label, "text": box.text[:most]} | corners


def pair_values(rows: Sequence[Pairing], differing: Collection[int] = ()) -> list[dict[str, Any]]:
    """`differing` are rows that some difference is about.

    Rows with two texts that are not the same have `runs` of both sides, and `changes` in words, digits first.
    """
    most = min(_MOST_CHARACTERS, _CHARACTERS // max(len(rows), 1))
    found: list[dict[str, Any]] = [
        {
            "state": row.state,
            "differs": number in differing,
            "a": _box_values(row.a, most),
            "b": _box_values(row.b, most),
            "iou": row.iou,
            "shift": row.shift_percent,
        }
        for number, row in enumerate(rows)
    ]
    for number in other_texts(rows):
        texts = found[number]["a"]["text"], found[number]["b"]["text"]
        named = changes(*texts)
        more = len(named) - _MOST_CHANGES
        runs = [list(map(list, of_side)) for of_side in compared(*texts)]
        found[number]["runs"] = dict(zip(SIDES, runs, strict=True))
        found[number]["changes"] = [*named[:_MOST_CHANGES], *([f"{more} more"] if more > 0 else [])]
    return found

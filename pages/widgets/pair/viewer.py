"""The viewer of a pair: the page with both sides' boxes, and both texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import streamlit as st

from dsocr_core.reading.differences import loose_text
from dsocr_core.reading.markup import Box
from dsocr_core.reading.parity import comparable
from dsocr_core.reading.records import SIDES, Side
from dsocr_core.reading.text_diff import Runs
from pages.widgets.components.viewer import MODES, show_viewer
from pages.widgets.pair.shown import PairView, Row, compared, label_colours, sheet_text
from pages.widgets.shared import resources

PaneWords = Mapping[Side, Mapping[str, str]]
"""For each side the line over its pane, and a notice with a button where there is nothing to show."""
_CHARACTERS, _OF_A_BOX = 400_000, 20_000
"""Limits of all texts of a page in the viewer, and of one box of a page with few."""


def draw(
    shown: PairView,
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
            "loose": list(loose_rows(shown)),
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
    """The row that the viewer or the table of blocks reports."""
    state: Any = st.session_state[key]
    if "selection" in state:
        rows = state["selection"]["rows"]
        row = rows[0] if rows else None
    else:
        row = (state.get("selected") or {}).get("row")
    return row if isinstance(row, int) else None


def _divergence(shown: PairView) -> dict[str, Any] | None:
    """The block in which the tokens diverge."""
    divergence = shown.report.first_divergence if shown.report else None
    if divergence is None or divergence.box_a is None:
        return None
    row = shown.row_of(divergence.box_a, None)
    return {"a": row, "words": f"first different token: {divergence.index:,}"}


def loose_rows(shown: PairView) -> Iterator[dict[str, Any]]:
    """Text that no box stands for, where it differs, and the whole text of a page without boxes."""
    texts: dict[Side, str] = {}
    a, b = shown.comparison.a, shown.comparison.b
    sides = shown.results
    if a is not None and b is not None and not a.request.together:
        sides = dict(zip(SIDES, comparable(a, b), strict=True))
    for side, result in sides.items():
        texts[side] = loose_text(*sheet_text(result, shown.sheet))
    if not any(texts.values()) or (len(texts) == 2 and texts["a"] == texts["b"] and shown.rows):
        return
    caption = "outside of boxes" if shown.rows else "no boxes on this page"
    runs = compared(texts.get("a", ""), texts.get("b", "")) if len(texts) == 2 else None
    cut: dict[Side, Runs] = {side: [(text[:_CHARACTERS], "same")] for side, text in texts.items()}
    of_sides: dict[Side, Runs] = dict(zip(SIDES, runs, strict=True)) if runs else {"a": [], "b": [], **cut}
    yield {"caption": caption} | {side: [list(run) for run in of_sides[side]] for side in SIDES}


def _box_values(box: Box | None, most: int) -> dict[str, Any] | None:
    if box is None:
        return None
    corners = {name: getattr(box, name) for name in ("x1", "y1", "x2", "y2")}
    return {"index": box.index, "label": box.label, "text": box.text[:most]} | corners


def pair_values(rows: Sequence[Row], differing: Collection[int] = ()) -> list[dict[str, Any]]:
    """Rows for the browser; `differing` are those that some difference is about.

    Rows whose two texts differ have `runs` of both sides.
    """
    most = min(_OF_A_BOX, _CHARACTERS // max(len(rows), 1))
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
    for number, row in enumerate(rows):
        if row.text_differs:
            runs = compared(*(found[number][side]["text"] for side in SIDES))
            found[number]["runs"] = dict(
                zip(SIDES, ([list(run) for run in side] for side in runs), strict=True)
            )
    return found

"""The viewer of a pair: the page with both sides' boxes, and both texts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import streamlit as st

from dsocr_core.reading.differences import loose_text
from dsocr_core.reading.markup import Box
from dsocr_core.reading.parity import comparable
from dsocr_core.reading.records import SIDES, Side
from dsocr_core.reading.text_diff import Runs
from pages.widgets.components import MODES, show_viewer
from pages.widgets.pair.shown import PairView, Row, compared, label_colours, sheet_text
from pages.widgets.pair.state import PairState
from pages.widgets.shared import resources

PaneWords = Mapping[Side, Mapping[str, str]]
"""`pane_words` of each side."""
_CHARACTERS, _OF_A_BOX = 400_000, 20_000
"""Limits of all texts of a page in the viewer, and of one box of a page with few."""


def draw(
    shown: PairView, image: Mapping[str, Any], panes: PaneWords, state: PairState, said: str, **around: Any
) -> Any:
    """Draw it. Returns the sides of which the reader asked a run.

    `image` is `image_values`; `said` is for screen readers.
    """
    key = f"{shown.prefix}viewer"

    def take_mode() -> None:
        if (chosen := st.session_state[key].get("mode")) in MODES:
            state.put("mode", chosen)

    divergence = shown.report.first_divergence if shown.report else None
    return show_viewer(
        key,
        {
            "image": image,
            "sides": panes,
            "names": shown.names,
            "pairs": pair_values(shown.rows, shown.differing),
            "loose": list(loose_rows(shown)),
            "colours": label_colours(shown.rows),
            "mode": state.value("mode"),
            "said": said,
            "selected": shown.selected,
            # The block in which the tokens diverge.
            "divergence": None if divergence is None or divergence.box_a is None else {
                "a": shown.row_of(divergence.box_a, None),
                "words": f"first different token: {divergence.index:,}",
            },
            **around,
        },
        on_selected=lambda: shown.select(clicked(key)),
        on_mode=take_mode,
    )  # fmt: skip


def pane_words(summary: str, message: str = "") -> dict[str, str]:
    """The line over a pane, and a notice where there is nothing to show; both may have a button."""
    return {"summary": summary, "message": message, "action": "", "action_words": ""}


def image_values(
    subject: str, picture: resources.Picture, kind: str, size: tuple[int, int] = (0, 0)
) -> dict[str, Any]:
    """The picture of a page of `size` (width, height) pixels, its own unless given.

    `kind` names what asks for it.
    """
    width, height = size if any(size) else (picture.width, picture.height)
    url = resources.picture_url(picture, kind)
    return {"id": f"{subject}:{width}x{height}", "url": url, "width": width, "height": height}


def clicked(key: str) -> int | None:
    """The row that the viewer or the table of blocks reports."""
    state: Any = st.session_state[key]
    if "selection" in state:
        return next(iter(state["selection"]["rows"]), None)
    row = (state.get("selected") or {}).get("row")
    return row if isinstance(row, int) else None


def loose_rows(shown: PairView) -> Iterator[dict[str, Any]]:
    """Text that no box stands for, where it differs, and the whole text of a page without boxes."""
    a, b = shown.comparison.a, shown.comparison.b
    sides = shown.results
    if a is not None and b is not None and not a.request.together:
        sides = dict(zip(SIDES, comparable(a, b), strict=True))
    texts = {side: loose_text(*sheet_text(result, shown.sheet)) for side, result in sides.items()}
    if not any(texts.values()) or (len(texts) == 2 and texts["a"] == texts["b"] and shown.rows):
        return
    runs: dict[Side, Runs] = {"a": [], "b": []}
    runs |= {side: [(text[:_CHARACTERS], "same")] for side, text in texts.items()}
    if len(texts) == 2:
        runs = dict(zip(SIDES, compared(texts["a"], texts["b"]), strict=True))
    caption = "outside of boxes" if shown.rows else "no boxes on this page"
    yield {"caption": caption} | {side: [list(run) for run in runs[side]] for side in SIDES}


def _box_values(box: Box | None, most: int) -> dict[str, Any] | None:
    if box is None:
        return None
    corners = {name: getattr(box, name) for name in ("x1", "y1", "x2", "y2")}
    return {"index": box.index, "label": box.label, "text": box.text[:most]} | corners


def pair_values(rows: Sequence[Row], differing: Collection[int] = ()) -> list[dict[str, Any]]:
    """Rows for the browser. `differing` are those that some difference is about.

    Rows whose two texts differ have `runs` of both sides.
    """
    most = min(_OF_A_BOX, _CHARACTERS // max(len(rows), 1))
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        a, b = (_box_values(box, most) for box in (row.a, row.b))
        values: dict[str, Any] = {
            "state": row.state, "differs": number in differing, "a": a, "b": b, "iou": row.iou,
            "shift": row.shift_percent,
        }  # fmt: skip
        if a and b and row.text_differs:
            runs = compared(a["text"], b["text"])
            values["runs"] = {side: [list(run) for run in of] for side, of in zip(SIDES, runs, strict=True)}
        found.append(values)
    return found

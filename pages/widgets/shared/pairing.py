"""The rows of a comparison of boxes as the pages number them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dsocr_core.markup import Box
from dsocr_core.parity_records import BoxPair
from dsocr_core.records import Side
from pages.widgets.shared import reading

MOST_PAIRS = 4000
"""A page has a hundred boxes; a hostile text may have any number."""


@dataclass(frozen=True)
class Pairing:
    """One row of the comparison as the page shows it: a BoxPair, or one side's box alone ("single")."""

    state: str
    a: Box | None
    b: Box | None
    iou: float | None
    shift_percent: float | None

    def box(self, side: Side) -> Box | None:
        return self.a if side == "a" else self.b


def pairings(pairs: Iterable[BoxPair]) -> list[Pairing]:
    """Pairs in reading order: by A's box, a box that only B has after the one before it."""
    rows = [Pairing(pair.state, pair.a, pair.b, pair.iou, pair.shift_percent) for pair in pairs]
    return sorted(rows, key=_reading_order)[:MOST_PAIRS]


def lone_pairings(boxes: Iterable[Box], side: Side) -> list[Pairing]:
    """The boxes of the only side that has a result."""
    return [
        Pairing("single", box if side == "a" else None, box if side == "b" else None, None, None)
        for box in boxes
    ][:MOST_PAIRS]


def _reading_order(row: Pairing) -> tuple[int, int]:
    if row.a is not None:
        return row.a.index, 0
    assert row.b is not None
    return row.b.index, 1


def other_texts(rows: Iterable[Pairing]) -> set[int]:
    """Rows whose two boxes hold another text, wherever they stand."""
    return {
        number
        for number, row in enumerate(rows)
        if row.a and row.b and row.a.text.strip() != row.b.text.strip()
    }


def label_colours(rows: Iterable[Pairing]) -> dict[str, str]:
    """The colour of every label on the page as #rrggbb."""
    labels = {box.label for row in rows for box in (row.a, row.b) if box}
    return {label: reading.label_colour(label) for label in labels}

"""What the viewer is told, as JSON-ready values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from dsocr_core.parity_records import Box, BoxPair

MODES = ("2-up", "swipe", "overlay", "difference")
MOST_PAIRS = 4000
"""A page has a hundred boxes; a hostile text may have any number."""


@dataclass(frozen=True)
class Pairing:
    """One row of the comparison as the page shows it: a BoxPair, or one backend's box alone ("single")."""

    state: str
    a: Box | None
    b: Box | None
    iou: float | None
    shift_percent: float | None


def pairings(pairs: Iterable[BoxPair]) -> list[Pairing]:
    """Pairs in reading order: by our box, a box that only the vendor has after the one before it."""
    rows = [Pairing(pair.state, pair.a, pair.b, pair.iou, pair.shift_percent) for pair in pairs]
    return sorted(rows, key=_reading_order)[:MOST_PAIRS]


def lone_pairings(boxes: Iterable[Box], backend: str) -> list[Pairing]:
    """The boxes of the only backend that ran."""
    return [
        Pairing("single", box if backend == "a" else None, box if backend == "b" else None, None, None)
        for box in boxes
    ][:MOST_PAIRS]


def _reading_order(row: Pairing) -> tuple[int, int]:
    if row.a is not None:
        return row.a.index, 0
    assert row.b is not None
    return row.b.index, 1


def box_values(box: Box | None) -> dict[str, Any] | None:
    if box is None:
        return None
    return {
        "index": box.index,
        "label": box.label,
        "x1": box.x1,
        "y1": box.y1,
        "x2": box.x2,
        "y2": box.y2,
        "text": box.text[:2000],
    }


def pair_values(rows: Iterable[Pairing], differing: Collection[int] = ()) -> list[dict[str, Any]]:
    """`differing` are rows that differ in more than their place and label, in their text say."""
    return [
        {
            "state": row.state,
            "differs": number in differing or row.state not in ("matched", "single"),
            "a": box_values(row.a),
            "b": box_values(row.b),
            "iou": row.iou,
            "shift": row.shift_percent,
        }
        for number, row in enumerate(rows)
    ]

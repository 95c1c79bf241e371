"""The data of the viewer as JSON-ready values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dsocr_core.markup import Box
from pages.widgets.shared.pairing import Pairing

MODES = ("2-up", "swipe", "overlay", "difference")


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
    """`differing` are rows that differ in more than their coordinates and label, in their text say."""
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

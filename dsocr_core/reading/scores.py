"""Boxes against the truth: which written box is which true one. The rule of the checkpoint's own card."""

from __future__ import annotations

from collections.abc import Sequence

MATCH_IOU = 0.75
"""A box counts as found when it overlaps the true one by so much."""

Corners = tuple[float, ...]
Labelled = tuple[str, Corners]


def iou(a: Corners, b: Corners) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2); 0 where they only touch."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return width * height / (areas - width * height)


def matched(
    reference: Sequence[Labelled], written: Sequence[Labelled], same_label: bool
) -> list[tuple[int, int]]:
    """Pairs (index in `reference`, index in `written`), one to one, of boxes that overlap enough.

    Each reference box in reading order takes its best; of equally good ones the first.
    """
    free = dict(enumerate(written))
    pairs = []
    for number, (label, box) in enumerate(reference):
        candidates = [index for index, (other, _) in free.items() if other == label or not same_label]
        best = max(candidates, key=lambda index: iou(box, free[index][1]), default=None)
        if best is not None and iou(box, free[best][1]) >= MATCH_IOU:
            del free[best]
            pairs.append((number, best))
    return pairs

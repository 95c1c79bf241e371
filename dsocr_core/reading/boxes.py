"""The one-to-one matching of the boxes of A and B."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dsocr_core.reading.markup import SCALE, Box, Coordinates
from dsocr_core.reading.parity_records import BoxPair, MatchState, Tolerance

Corners = npt.NDArray[np.float64]  # boxes as rows of x1, y1, x2, y2, or figures of pairs
MATCH_IOU, NEAR_PERCENT = 0.1, 5.0
"""Boxes of one label are the same block if they overlap by as much, or their corners are off by no more."""
RELABELLED_IOU, SAME_LABEL_BONUS = 0.5, 0.25
"""Overlap of a block under two labels, and by how much more it must be to be preferred to one label."""
MATCH_LIMIT = 2000
"""Boxes of a backend that are compared by overlap: a page has a hundred, a hostile text any number."""


def match_boxes(
    boxes_a: Sequence[Box], boxes_b: Sequence[Box], moved_percent: float = Tolerance.shift_percent
) -> tuple[BoxPair, ...]:
    """One-to-one matching within a page: equal boxes first, then by overlap, label, nearness and order.

    A matched box has moved when a corner is off by more than `moved_percent` of the page's side. Returns one
    row a pair or lone box, in A's order of appearance, boxes that only B has last.
    """
    waiting: dict[tuple[int, str, Coordinates], list[int]] = defaultdict(list)
    for j in reversed(range(len(boxes_b))):
        waiting[boxes_b[j].page, boxes_b[j].label, _ordered(boxes_b[j])].append(j)
    partner: dict[int, int] = {}
    for i, box in enumerate(boxes_a):
        if equal := waiting.get((box.page, box.label, _ordered(box))):
            partner[i] = equal.pop()
    taken = {*partner.values()}
    left_a = [i for i in range(len(boxes_a)) if i not in partner][:MATCH_LIMIT]
    left_b = [j for j in range(len(boxes_b)) if j not in taken][:MATCH_LIMIT]
    if left_a and left_b:
        for row, column in _candidates([boxes_a[i] for i in left_a], [boxes_b[j] for j in left_b]):
            if left_a[row] not in partner and left_b[column] not in taken:
                partner[left_a[row]] = left_b[column]
                taken.add(left_b[column])
    rows = [
        _pair(box, boxes_b[partner[i]], moved_percent) if i in partner else BoxPair("only_a", box, None)
        for i, box in enumerate(boxes_a)
    ]
    return (*rows, *(BoxPair("only_b", None, box) for j, box in enumerate(boxes_b) if j not in taken))


def _pair(a: Box, b: Box, moved_percent: float) -> BoxPair:
    shift = max(100 * abs(p - q) / SCALE for p, q in zip(_ordered(a), _ordered(b), strict=True))
    overlap = 1.0 if shift == 0 else float(iou(*(np.array([_ordered(box)]) for box in (a, b)))[0, 0])
    moved: MatchState = "moved" if shift > moved_percent else "matched"
    return BoxPair("relabelled" if a.label != b.label else moved, a, b, overlap, shift)


def _ordered(box: Box) -> Coordinates:
    """The coordinates as written, corners in order."""
    x1, y1, x2, y2 = box.coordinates
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def _candidates(boxes_a: Sequence[Box], boxes_b: Sequence[Box]) -> list[tuple[int, int]]:
    """(i, j) of every pair that may match, best first."""
    a, b = (np.array([_ordered(box) for box in boxes]) for boxes in (boxes_a, boxes_b))
    overlap, shift = iou(a, b), np.zeros((len(a), len(b)))  # (N, M)
    for side in range(4):
        np.maximum(shift, np.abs(np.subtract.outer(a[:, side], b[:, side])), out=shift)
    shift *= 100 / SCALE
    labels, pages = (
        [np.array([getattr(box, name) for box in boxes], object) for boxes in (boxes_a, boxes_b)]
        for name in ("label", "page")
    )
    same = np.equal.outer(*labels).astype(bool)
    possible = np.where(same, (overlap >= MATCH_IOU) | (shift <= NEAR_PERCENT), overlap >= RELABELLED_IOU)
    i, j = np.nonzero(possible & np.equal.outer(*pages).astype(bool))
    score = overlap[i, j] + SAME_LABEL_BONUS * same[i, j]
    best = np.lexsort((j, i, np.abs(i - j), shift[i, j], -score))
    return list(zip(i[best].tolist(), j[best].tolist(), strict=True))


def iou(a: Corners, b: Corners) -> Corners:
    """Intersection over union of every pair, 1 for equal boxes without area: (N, 4), (M, 4) -> (N, M)."""
    across, down = (
        (np.minimum.outer(a[:, high], b[:, high]) - np.maximum.outer(a[:, low], b[:, low])).clip(0.0)
        for low, high in ((0, 2), (1, 3))
    )  # (N, M)
    both = across * down
    area_a, area_b = ((box[:, 2:] - box[:, :2]).prod(-1) for box in (a, b))
    union = area_a[:, None] + area_b[None, :] - both
    equal = (a[:, None, :] == b[None, :, :]).all(-1)
    overlap: Corners = np.where(equal, 1.0, both / np.where(union > 0, union, 1.0))
    return overlap

"""Boxes in pixels, and the one-to-one matching of two roads' boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dsocr_core.outputs.markup import Coordinates, Span
from dsocr_core.records import Box, BoxPair, MatchState

SCALE = 999
"""The model writes coordinates in 0..999 of the page's sides."""

MOVED_PERCENT = 2.0
"""A matched box whose corner is off by more than this part of the page's side has moved."""

MATCH_IOU = 0.1
"""Boxes that overlap less than this are not the same block."""

MATCH_LIMIT = 2000
"""Boxes of a road that are matched; a page has a hundred, a hostile text may have any number."""

_SAME_LABEL_BONUS = 1.0


def pixel_corners(box: Coordinates, width: int, height: int) -> tuple[int, int, int, int]:
    """(x1, y1, x2, y2) in pixels as the published code computes them: truncated, not clipped."""
    x1, y1, x2, y2 = box
    return (
        int(x1 / SCALE * width),
        int(y1 / SCALE * height),
        int(x2 / SCALE * width),
        int(y2 / SCALE * height),
    )


def page_boxes(spans: Sequence[Span], width: int, height: int) -> tuple[Box, ...]:
    """Every box of a page of that size in pixels, in order of appearance; reversed corners are swapped."""
    boxes: list[Box] = []
    for span in spans:
        for coordinates in span.boxes:
            x1, y1, x2, y2 = pixel_corners(coordinates, width, height)
            boxes.append(
                Box(
                    index=len(boxes),
                    label=span.label,
                    x1=min(x1, x2),
                    y1=min(y1, y2),
                    x2=max(x1, x2),
                    y2=max(y1, y2),
                    text=span.text,
                    coordinates=coordinates,
                )
            )
    return tuple(boxes)


def match_boxes(ours: Sequence[Box], vendor: Sequence[Box], size: tuple[int, int]) -> tuple[BoxPair, ...]:
    """One-to-one matching by overlap; of equal overlaps a box of the same label wins, then order.

    `size` is the page's (width, height) in pixels. Returns one row a pair or lone box, in our order of
    appearance, boxes that only the vendor has last. Boxes beyond MATCH_LIMIT stay alone.
    """
    partner: dict[int, tuple[int, float]] = {}
    taken: set[int] = set()
    for i, j, iou in _candidates(ours[:MATCH_LIMIT], vendor[:MATCH_LIMIT]):
        if i not in partner and j not in taken:
            partner[i] = (j, iou)
            taken.add(j)
    pairs = []
    for i, box in enumerate(ours):
        if i in partner:
            j, iou = partner[i]
            shift = shift_percent(box, vendor[j], size)
            pairs.append(BoxPair(_state(box, vendor[j], shift), box, vendor[j], iou, shift))
        else:
            pairs.append(BoxPair("only_ours", box, None, None, None))
    lone = (box for j, box in enumerate(vendor) if j not in taken)
    return (*pairs, *(BoxPair("only_vendor", None, box, None, None) for box in lone))


def shift_percent(a: Box, b: Box, size: tuple[int, int]) -> float:
    """Largest difference of two boxes' corners, in percent of the page's side."""
    width, height = size
    across = max(abs(a.x1 - b.x1), abs(a.x2 - b.x2)) / width
    down = max(abs(a.y1 - b.y1), abs(a.y2 - b.y2)) / height
    return 100 * max(across, down)


def _state(ours: Box, vendor: Box, shift: float) -> MatchState:
    if ours.label != vendor.label:
        return "relabelled"
    return "moved" if shift > MOVED_PERCENT else "matched"


def _candidates(ours: Sequence[Box], vendor: Sequence[Box]) -> list[tuple[int, int, float]]:
    """(i, j, IoU) of every pair that may match, best first."""
    if not ours or not vendor:
        return []
    a, b = _corners(ours), _corners(vendor)  # (N, 4), (M, 4)
    label_ids: dict[str, int] = {}
    label_a = np.array([label_ids.setdefault(box.label, len(label_ids)) for box in ours])
    label_b = np.array([label_ids.setdefault(box.label, len(label_ids)) for box in vendor])
    iou = _iou(a, b)  # (N, M)
    i, j = np.nonzero(iou >= MATCH_IOU)
    score = iou[i, j] + _SAME_LABEL_BONUS * (label_a[i] == label_b[j])
    best = np.lexsort((j, i, np.abs(i - j), -score))
    return [(int(i[k]), int(j[k]), float(iou[i[k], j[k]])) for k in best]


def _corners(boxes: Sequence[Box]) -> npt.NDArray[np.float64]:
    return np.array([(box.x1, box.y1, box.x2, box.y2) for box in boxes], dtype=np.float64)


def _iou(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Intersection over union of every pair: (N, 4), (M, 4) -> (N, M). Boxes count whole pixels."""
    left_top = np.maximum(a[:, None, :2], b[None, :, :2])
    right_bottom = np.minimum(a[:, None, 2:], b[None, :, 2:]) + 1
    sides = np.clip(right_bottom - left_top, 0, None)  # (N, M, 2)
    both = sides.prod(-1)
    area_a, area_b = ((box[:, 2:] - box[:, :2] + 1).prod(-1) for box in (a, b))
    union: npt.NDArray[np.float64] = area_a[:, None] + area_b[None, :] - both
    iou: npt.NDArray[np.float64] = both / union
    return iou

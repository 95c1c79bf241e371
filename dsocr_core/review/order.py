"""Reading order: where the boxes that both sides have come in another order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.parity_records import BoxPair
from dsocr_core.review.page import ReadingOrder

NO_ORDER = ReadingOrder(0, 0, 0, ())

ORDER_LIMIT = 5000
"""Boxes whose order is compared: a page has a hundred, a hostile text may have any number."""


def reading_order(pairs: Iterable[BoxPair]) -> ReadingOrder:
    """The order of matched boxes on both sides, A's order of appearance against B's."""
    both = sorted((pair.a.index, pair.b.index) for pair in pairs if pair.a and pair.b)
    del both[ORDER_LIMIT:]
    of_b = [b for _, b in both]
    in_order = sorted(of_b)
    if of_b == in_order:
        return ReadingOrder(len(both), 0, 0, ())
    in_place = set(longest_increasing(of_b))
    return ReadingOrder(
        matched=len(both),
        inversions=inversions(of_b),
        edit_distance=Levenshtein.distance(of_b, in_order),
        out_of_order=tuple(a for index, (a, _) in enumerate(both) if index not in in_place),
    )


def inversions(values: Sequence[int]) -> int:
    """Pairs of values that stand in reversed order."""
    passed: list[int] = []
    count = 0
    for value in values:
        count += len(passed) - bisect_right(passed, value)
        insort(passed, value)
    return count


def longest_increasing(values: Sequence[int]) -> list[int]:
    """Indices of the longest strictly increasing subsequence, in order."""
    ends: list[int] = []
    indices: list[int] = []
    before: list[int | None] = []
    for index, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(indices[length - 1] if length else None)
        if length == len(ends):
            ends.append(value)
            indices.append(index)
        else:
            ends[length], indices[length] = value, index
    chain: list[int] = []
    at = indices[-1] if indices else None
    while at is not None:
        chain.append(at)
        at = before[at]
    return chain[::-1]

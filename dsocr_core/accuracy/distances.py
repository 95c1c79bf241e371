"""Edit distances of texts, and how much of the slow ones a page may cost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import Levenshtein

MOST_WINDOWS = 20_000_000
"""Stretches of text that are compared for one page: a minute or so. The benchmark stops at 30 s instead."""


class OverBudget(Exception):
    """A page whose texts are too many and too long to be matched in full."""


class Budget:
    """Counts the stretches compared for a page."""

    def __init__(self, most: int = MOST_WINDOWS) -> None:
        self._left = most

    def spend(self, windows: int) -> None:
        """Raises OverBudget."""
        self._left -= windows
        if self._left < 0:
            raise OverBudget


def distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """Levenshtein distance over the longer length, 0..1; 0 of two empty ones."""
    longer = max(len(a), len(b))
    return Levenshtein.distance(a, b) / longer if longer else 0.0


def distances(rows: Sequence[str], columns: Sequence[str]) -> npt.NDArray[np.float64]:
    """`distance` of each text of one list to each of another, (rows, columns)."""
    table = [[distance(a, b) for b in columns] for a in rows]
    return np.array(table, dtype=np.float64).reshape(len(rows), len(columns))


def nearest_window(part: str, text: str, limit: float, budget: Budget) -> float | None:
    """The least distance, per character, of `part` to a stretch of `text` as long as it.

    None when there is no such stretch. What is above `limit` may come back as any number above it.
    """
    length = len(part)
    if not 0 < length <= len(text):
        return None
    count = len(text) - length + 1
    budget.spend(count)
    cutoff = int(limit * length) + 1
    best = cutoff + 1
    for start in range(count):
        found = Levenshtein.distance(text[start : start + length], part, score_cutoff=min(cutoff, best))
        if found < best:
            best = found
            if best == 0:
                break
    return best / length

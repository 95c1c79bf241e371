"""Edit distances of texts, and how much of the slow ones a page may cost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import Levenshtein

MOST_STEPS = 15_000_000
"""What the stretches of text that are compared for one page may cost: some 7 s of one core. The benchmark
stops at 30 s of its own code instead."""


class OverBudget(Exception):
    """A page whose texts are too many and too long to be matched in full."""


class Budget:
    """Counts what the stretches compared for a page cost."""

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._left = most

    def spend(self, steps: int) -> None:
        """Raises OverBudget."""
        self._left -= steps
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
    # A short stretch is one step, about 0.4 us; the time of long ones grows with their length squared.
    budget.spend(count * (1 + length // 100 + length * length // 20_000))
    cutoff = int(limit * length) + 1
    best = cutoff + 1
    for start in range(count):
        found = Levenshtein.distance(text[start : start + length], part, score_cutoff=min(cutoff, best))
        if found < best:
            best = found
            if best == 0:
                break
    return best / length

"""Repetition loops: a piece of text that the model wrote again and again. Linear but for sorting."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TEXT_LIMIT = 100_000
"""Characters of a text that are searched."""
FEWEST, SHORTEST = 4, 80
"""A loop is at least so many turns and so many characters; ..."""
MANY, SHORT = 6, 36
"""... or so many turns of so few characters. The n-gram rule lets no more than about twenty tokens repeat."""
SIGN_TURNS, SIGNS, LEADERS = 100, 400, 1000
"""Limits of units without a letter or digit outside of tags: so many turns and characters, more where they
are of leaders, rules and blanks. What documents have of them is shorter: a line, the empty cells of a
table.
"""
_WINDOW, _CANDIDATES = 12, 8
_LEADER = frozenset(" \t\n.…·•_-–—=─━*~")


@dataclass(frozen=True)
class Loop:
    """`count` whole turns of `unit` from character `start` of the text on."""

    start: int
    period: int
    count: int
    unit: str


@functools.lru_cache(maxsize=4)
def find_loop(text: str) -> Loop | None:
    """The longest repetition of a text, None when nothing repeats enough to be a loop.

    The last answers are cached: both sides of most pages have the same text.
    """
    text = text[:TEXT_LIMIT]
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)  # (N,)
    best: Loop | None = None
    for period in _periods(codes):
        start, length = _longest_run(codes[period:] == codes[:-period])
        loop = Loop(start, period, (length + period) // period, text[start : start + period])
        longer = best is None or loop.period * loop.count > best.period * best.count
        if longer and _repeats(loop.unit, loop.count):
            best = loop
    return best


def _repeats(unit: str, count: int) -> bool:
    size = len(unit) * count
    untagged = re.sub(r"^[^<>]*>|<[^<>]*$", "", re.sub(r"<[^<>]*>", "", unit))
    if not any(map(str.isalnum, untagged)):
        return count >= SIGN_TURNS and size >= (LEADERS if _LEADER.issuperset(unit) else SIGNS)
    return count >= FEWEST and size >= SHORT and (size >= SHORTEST or count >= MANY)


def _periods(codes: npt.NDArray[np.uint32]) -> list[int]:
    """Distances at which windows of the text come again most often, shortest first."""
    n = len(codes)
    if n < SHORT:
        return []
    weights = np.random.default_rng(0).integers(1, 2**63, _WINDOW, dtype=np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(codes.astype(np.uint64), _WINDOW)  # (N - W + 1, W)
    hashes = windows @ weights
    order = np.argsort(hashes, kind="stable")
    again = hashes[order[1:]] == hashes[order[:-1]]
    distances = (order[1:] - order[:-1])[again]
    if len(distances) < SHORT // 2:
        return []
    periods, times = np.unique(distances, return_counts=True)
    possible = (periods <= n // FEWEST) & (times >= SHORT // 3)
    periods, times = periods[possible], times[possible]
    return sorted(periods[np.argsort(-times, kind="stable")[:_CANDIDATES]].tolist())


def _longest_run(true: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return 0, 0
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest] - starts[longest])

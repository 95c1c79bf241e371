"""Repetition loops: a piece of text that the model wrote again and again. Linear but for sorting."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
NUMBERED_TURNS, NUMBERED_LETTERS, REGULAR = 8, 12, 0.9
"""Limits of units in which a number changes: so many turns of so many letters outside of tags and labels, and
the part of steps that are alike. Rows of other numbers are tables.
"""
_WINDOW, _CANDIDATES = 12, 8
_LEADER = frozenset(" \t\n.…·•_-–—=─━*~")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Loop:
    """`count` turns of `unit`, whole ones, from character `start` of the text on.

    Where a number changes in it, `unit` is the first turn and `period` the mean of all.
    """

    start: int
    period: int
    count: int
    unit: str

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


@functools.lru_cache(maxsize=4)
def find_loop(text: str) -> Loop | None:
    """The longest repetition of a text, None when nothing repeats enough to be a loop.

    The last answers are cached: both sides of most pages have the same text.
    """
    text = text[:TEXT_LIMIT]
    return _longest(text, _repeats) or _numbered_loop(text)


def _longest(text: str, enough: Callable[[str, int], bool]) -> Loop | None:
    """The longest repetition whose unit and number of turns are `enough`."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)  # (N,)
    best: Loop | None = None
    for period in _periods(codes):
        start, length = _longest_run(codes[period:] == codes[:-period])
        loop = Loop(start, period, (length + period) // period, text[start : start + period])
        longer = best is None or loop.end - loop.start > best.end - best.start
        if longer and enough(loop.unit, loop.count):
            best = loop
    return best


def _repeats(unit: str, count: int) -> bool:
    size = len(unit) * count
    if not any(map(str.isalnum, _untagged(unit))):
        return count >= SIGN_TURNS and size >= (LEADERS if _LEADER.issuperset(unit) else SIGNS)
    return count >= FEWEST and size >= SHORT and (size >= SHORTEST or count >= MANY)


def _counts(unit: str, count: int) -> bool:
    words = _untagged(re.sub(r"(?s)<\|ref\|>.*?<\|/ref\|>", "", unit))
    return count >= NUMBERED_TURNS and sum(map(str.isalpha, words)) >= NUMBERED_LETTERS


def _untagged(unit: str) -> str:
    return re.sub(r"^[^<>]*>|<[^<>]*$", "", re.sub(r"<[^<>]*>", "", unit))


def _numbered_loop(text: str) -> Loop | None:
    """A loop of the text whose numbers are all alike: a box that moves, a row that counts."""
    found = _longest(_DIGITS.sub("0", text), _counts)
    if found is None:
        return None
    places = [0]  # in the text, where each character of the masked one begins, and its end
    for match in re.finditer(r"\d+|\D", text):
        places.append(match.end())
    starts = [places[at] for at in range(found.start, found.end + 1, found.period)]
    turns = [text[start:end] for start, end in pairwise(starts)]
    if not _counts_on(turns):
        return None
    return Loop(starts[0], (starts[-1] - starts[0]) // found.count, found.count, turns[0])


def _counts_on(turns: Sequence[str]) -> bool:
    """Tell whether the numbers outside of boxes stay or go on by the same step: those of a table do not."""
    rows = [_DIGITS.findall(re.sub(r"(?s)<\|det\|>.*?<\|/det\|>", "", turn)) for turn in turns]
    numbers = np.array([[int(digits[:15]) for digits in row] for row in rows], np.int64)  # (turns, N)
    steps = np.diff(numbers, axis=0)
    return bool((steps == np.median(steps, axis=0)).mean() >= REGULAR if steps.size else True)


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

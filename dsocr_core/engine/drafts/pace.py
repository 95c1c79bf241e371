"""Pace of drafts: how many rows the next passes have: by what rows cost, and how often the draft was right so
far.

While a draft is not worth its passes the engine decodes token by token, and what the draft would have said is
compared here, which costs the device nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from math import sqrt

COSTS = {1: 1.0, 4: 2.4, 8: 3.6, 16: 5.8, 32: 9.0}
"""Time of a pass by its rows, in single steps, on an H100 (docs/performance.md)."""
COSTS_ON = {"H200": {1: 1.0, 4: 2.43, 8: 3.84, 16: 6.47, 32: 10.9}}
"""Times on cards whose name has that."""

NEAR, LEAST_NEAR, LEAST_FAR, LONGEST = 32, 2, 4, 8
"""As `kernels.verify.draft` looks for a lost place."""

_TRIED, _RIGHT = 2.0, 1.8
_FADES, _FORGETS, _SURPRISE = 0.9, 0.3, 2.0
"""Shares left of what was seen before: usually, and where what came is so many deviations from it."""
_CANDIDATES = 64


def costs_on(card: str) -> dict[int, float]:
    """Times of passes on a card of that name; an H100's where it was not measured."""
    return next((costs for name, costs in COSTS_ON.items() if name in card), COSTS)


def tokens_a_pass(rows: int, right: float) -> float:
    """Expected tokens of a pass whose drafted tokens are right with that probability each."""
    return float(rows) if right >= 1.0 else (1.0 - right**rows) / (1.0 - right)


class Place:
    """Place of a draft while tokens come one by one; None is a draft of those tokens themselves."""

    def __init__(self, draft: Sequence[int] | None) -> None:
        self._own: list[int] | None = [] if draft is None else None
        self._draft: Sequence[int] = self._own if self._own is not None else draft or ()
        self.shift = 0
        self._places: dict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(self._draft):
            self._places[token].append(place)

    @property
    def end(self) -> int:
        """The number of the token after the draft's last."""
        return len(self._draft) - self.shift

    def follow(self, tokens: Sequence[int]) -> bool:
        """Take in a new last token of `tokens`; whether the draft had it there. Looks for a lost place."""
        there = self.agreed(tokens, len(tokens) - 1, 1) == 1
        self.take(tokens, not there)
        return there

    def agreed(self, tokens: Sequence[int], number: int, most: int) -> int:
        """Count how many tokens from that number on, of so many at most, the draft has where it stands."""
        at = number + self.shift
        if at < 0:
            return 0
        pairs = zip(tokens[number : number + most], self._draft[at : at + most], strict=False)
        return next((n for n, (token, drafted) in enumerate(pairs) if token != drafted), min(
            most, len(tokens) - number, max(len(self._draft) - at, 0)
        ))  # fmt: skip

    def take(self, tokens: Sequence[int], lost: bool) -> None:
        """Take in new last tokens of `tokens`; look for the place where it is lost."""
        if lost:
            self._find(tokens)
        if self._own is not None:
            for token in tokens[len(self._own) :]:
                self._places[token].append(len(self._own))
                self._own.append(token)

    def earlier(self, ahead: int) -> int:
        """The shift for a text that repeats itself, so many tokens of which are not known yet.

        As many of its periods back as leave that many to draft.
        """
        return self.shift * -(-ahead // -self.shift) if self.shift < 0 else self.shift

    def _find(self, tokens: Sequence[int]) -> None:
        """Stand where the draft has the last tokens' longest run, as the kernel does: after two misses."""
        number = len(tokens) - 1
        at = number + self.shift
        itself = self._own is not None and self.shift == 0
        if not itself and 0 < at <= len(self._draft) and self._draft[at - 1] == tokens[number - 1]:
            return
        places = self._places.get(tokens[number], [])
        middle = bisect_left(places, at)
        best = (0, 0, self.shift)
        for place in places[max(0, middle - _CANDIDATES // 2) : middle + _CANDIDATES // 2]:
            run = self._run(tokens, place)
            away = abs(place - at)
            if run >= (LEAST_NEAR if away <= NEAR else LEAST_FAR):
                best = max(best, (run, -away, place - number))
        self.shift = best[2]

    def _run(self, tokens: Sequence[int], place: int) -> int:
        """Count how many last tokens the draft has up to that place."""
        number = len(tokens) - 1
        most = min(LONGEST, place + 1, number + 1)
        return next((n for n in range(most) if self._draft[place - n] != tokens[number - n]), most)


class Pace:
    """The rows of the next passes. Unless `hopeful`, the draft is first looked at while single steps run."""

    def __init__(self, costs: dict[int, float] | None = None, hopeful: bool = True) -> None:
        self._costs = costs or COSTS
        self._right, self._tried = _RIGHT if hopeful else 0.0, _TRIED

    def took(self, right: int, wrong: int) -> None:
        """Count drafted tokens that were right, and those at which a pass ended."""
        if not (some := right + wrong):
            return
        usual = some * self.right
        surprise = abs(right - usual) / sqrt(usual * (1.0 - self.right) + 0.25)
        left = _FORGETS if surprise >= _SURPRISE else _FADES
        self._right, self._tried = self._right * left + right, self._tried * left + some

    @property
    def right(self) -> float:
        """Share of drafted tokens that were right of late."""
        return self._right / self._tried

    @property
    def rows(self) -> int:
        """Those with the most tokens in a time; 1 is no draft at all."""
        return max(self._costs, key=lambda rows: tokens_a_pass(rows, self.right) / self._costs[rows])

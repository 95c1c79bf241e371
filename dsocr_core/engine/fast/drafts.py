"""Drafts of the pages in a batch: how right each was, and how many rows a slot the next steps have.

All slots take a step together, so one number of rows serves all. It is the best for all drafts together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import sqrt

import torch
from torch import Tensor

from dsocr_core.kernels.batch.drafts import (
    ACCEPTED,
    DRAFT_SIZE,
    DRAFTED,
    LENGTH,
    NOTHING,
    PASSES,
    RIGHT,
    SHIFT,
    WRONG,
)

MOST_DRAFTED = 16384
"""Most tokens of a draft that the device holds."""
FIRST_ROWS = 4
"""Rows of a draft's first pass."""
COSTS = {1: 1.0, 4: 1.4, 8: 1.85}
"""Time of a step of all slots by its rows; a step of one row is 1. On an H200 (docs/performance.md)."""

_TRIED, _RIGHT = 2.0, 1.8
_FADES, _FORGETS, _SURPRISE = 0.9, 0.3, 2.0
"""Share of old counts that stays after a pass: usual, and after a surprise of so many deviations."""


def draft_rows(tokens: Sequence[int], first_new: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Tokens and state (int32) of a draft for positions from `first_new` on. Unknown ids propose nothing."""
    draft = torch.tensor(tokens[:MOST_DRAFTED], dtype=torch.int64)
    draft[(draft < 0) | (draft >= vocabulary)] = NOTHING
    state = torch.zeros(DRAFT_SIZE, dtype=torch.int32)
    state[SHIFT], state[LENGTH] = -first_new, len(draft)
    return draft.to(torch.int32), state


def tokens_a_pass(rows: int, right: float) -> float:
    """Expected tokens of a pass when each drafted token is right with probability `right`."""
    return float(rows) if right >= 1.0 else (1.0 - right**rows) / (1.0 - right)


class SlotDraft:
    """Statistics of a page's draft, from the states of its slot."""

    def __init__(self, drafted: bool, trusted: bool = True) -> None:
        """A draft that is not `trusted` is first compared with tokens of single steps."""
        self._right, self._tried = _RIGHT if trusted else 0.0, _TRIED
        self._drafted = drafted
        self._last = [0] * DRAFT_SIZE
        self._made: Counter[int] = Counter()

    @property
    def right(self) -> float:
        """Recent share of drafted tokens that were right."""
        return self._right / self._tried

    def expected(self, rows: int) -> float:
        """Expected tokens of a pass with that many rows."""
        if not self._drafted:
            return 1.0
        return tokens_a_pass(rows if self._made else min(rows, FIRST_ROWS), self.right)

    def take(self, state: Sequence[int], rows: int) -> int:
        """Add the passes since the last state, whose steps had `rows` rows. Returns how many there were."""
        since = [now - before for now, before in zip(state, self._last, strict=True)]
        self._count(since[RIGHT], since[WRONG])
        self._last = list(state)
        self._made[rows] += since[PASSES]
        return since[PASSES]

    def _count(self, right: int, wrong: int) -> None:
        if not (some := right + wrong):
            return
        expected = some * self.right
        surprise = abs(right - expected) / sqrt(expected * (1.0 - self.right) + 0.25)
        left = _FORGETS if surprise >= _SURPRISE else _FADES
        self._right, self._tried = self._right * left + right, self._tried * left + some

    def facts(self) -> dict[str, str] | None:
        """Passes of the page, tokens proposed and accepted in them; None without a draft."""
        if not self._drafted:
            return None
        counts = {"passes": PASSES, "drafted": DRAFTED, "accepted": ACCEPTED}
        made = " ".join(f"{rows}:{count}" for rows, count in sorted(self._made.items()) if count)
        return {name: str(self._last[at]) for name, at in counts.items()} | ({"rows": made} if made else {})


def best_rows(drafts: Collection[SlotDraft]) -> int:
    """Number of rows a slot that gives most tokens a second with these drafts."""
    return max(COSTS, key=lambda rows: sum(each.expected(rows) for each in drafts) / COSTS[rows])

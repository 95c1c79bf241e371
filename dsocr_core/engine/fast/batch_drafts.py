"""Drafts of a batch's pages: what each gave so far, and how many rows a slot the next steps have.

All slots take a step together, so one number of rows serves all: passes are made while the pages' drafts
together are worth what passes cost. A single step looks whether the draft is right, so one that gets right
again is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from dsocr_core.engine.drafts.pace import Pace, tokens_a_pass
from dsocr_core.kernels.verify.draft import ACCEPTED, DRAFT_SIZE, DRAFTED, PASSES, RIGHT, WRONG

FIRST_ROWS = 4
"""Rows that a draft is trusted with before its first pass."""
COSTS = {1: 1.0, 4: 1.4, 8: 1.85}
"""Time of a step of all slots by its rows, in single steps, on an H200 (docs/performance.md)."""


class SlotDraft:
    """A page's draft, by the state that its slot was last read with."""

    def __init__(self, drafted: bool) -> None:
        self._pace = Pace(hopeful=drafted)
        self._drafted = drafted
        self._last = [0] * DRAFT_SIZE
        self._made: Counter[int] = Counter()

    def expected(self, rows: int) -> float:
        """Tokens of a pass of so many rows, as the draft was so far."""
        if not self._drafted:
            return 1.0
        return tokens_a_pass(rows if self._made else min(rows, FIRST_ROWS), self._pace.right)

    def take(self, state: Sequence[int], rows: int) -> int:
        """Take in the state after steps of so many rows: the passes made since."""
        since = [now - before for now, before in zip(state, self._last, strict=True)]
        self._pace.took(since[RIGHT], since[WRONG])
        self._last = list(state)
        self._made[rows] += since[PASSES]
        return since[PASSES]

    def facts(self, tokens: int) -> dict[str, str] | None:
        """Tell what the draft gave a page of so many new tokens; None without one. As `DraftedPage.facts`."""
        if not self._drafted:
            return None
        passes, drafted, accepted = (self._last[at] for at in (PASSES, DRAFTED, ACCEPTED))
        cost = tokens - 1 - passes - accepted + sum(COSTS[rows] * n for rows, n in self._made.items())
        found = {"passes": passes, "drafted": drafted, "accepted": accepted}
        made = " ".join(f"{rows}:{count}" for rows, count in sorted(self._made.items()) if count)
        rows = {"rows": made} if made else {}
        won = {"won": f"{(tokens - 1) / cost:.2f}"} if cost else {}
        return {name: str(value) for name, value in found.items()} | rows | won


def rows_of(drafts: Collection[SlotDraft]) -> int:
    """Rows a slot with which these pages get the most tokens in a time."""
    return max(COSTS, key=lambda rows: sum(each.expected(rows) for each in drafts) / COSTS[rows])

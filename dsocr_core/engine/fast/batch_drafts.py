"""Drafts of a batch's pages: what each gave so far, and how many rows a slot the next steps have.

All slots take a step together, so one number of rows serves all: passes are made while the pages' drafts
together are worth what passes cost. A single step looks whether the draft is right, so one that gets right
again is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dsocr_core.engine.drafts.pace import Pace, tokens_a_pass
from dsocr_core.engine.fast.batch_step import ROWS_A_PASS
from dsocr_core.kernels.verify.draft import ACCEPTED, DRAFT_SIZE, DRAFTED, PASSES, RIGHT, WRONG

COST = 1.3
"""Time of a pass in single steps (docs/performance.md)."""


class SlotDraft:
    """A page's draft, by the state that its slot was last read with."""

    def __init__(self, drafted: bool) -> None:
        self._pace = Pace(hopeful=drafted)
        self._drafted = drafted
        self._last = [0] * DRAFT_SIZE

    @property
    def expected(self) -> float:
        """Tokens of a pass, as the draft was so far."""
        return tokens_a_pass(ROWS_A_PASS, self._pace.right) if self._drafted else 1.0

    def take(self, state: Sequence[int]) -> int:
        """Take in a newer state: the passes made since."""
        since = [now - before for now, before in zip(state, self._last, strict=True)]
        self._pace.took(since[RIGHT], since[WRONG])
        self._last = list(state)
        return since[PASSES]

    def facts(self, tokens: int) -> dict[str, str] | None:
        """Tell what the draft gave a page of so many new tokens; None without one. As `DraftedPage.facts`."""
        if not self._drafted:
            return None
        passes, drafted, accepted = (self._last[at] for at in (PASSES, DRAFTED, ACCEPTED))
        cost = tokens - 1 - passes - accepted + COST * passes
        found = {"passes": passes, "drafted": drafted, "accepted": accepted}
        rows = {"rows": f"{ROWS_A_PASS}:{passes}"} if passes else {}
        won = {"won": f"{(tokens - 1) / cost:.2f}"} if cost else {}
        return {name: str(value) for name, value in found.items()} | rows | won


def rows_of(drafts: Collection[SlotDraft]) -> int:
    """Rows a slot with which these pages get the most tokens in a time."""
    return ROWS_A_PASS if sum(each.expected for each in drafts) > COST * len(drafts) else 1

"""Gains of drafts: of pages that were read with one, and what one would give for tokens that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from dsocr_core.engine.drafts.pace import COSTS, Pace, Place

STEPS_A_GROUP, PASSES_A_GROUP = 16, 2
"""Between two looks of the host (`engine.fast`)."""


@dataclass
class Given:
    """Sums over pages."""

    tokens: int = 0
    """After the first of each page, which comes from the prefill."""
    passes: int = 0
    accepted: int = 0
    cost: float = 0.0
    """Cost of passes and single steps, in single steps (`pace.COSTS`)."""

    @property
    def tokens_a_pass(self) -> float | None:
        """None where no pass was made."""
        return 1 + self.accepted / self.passes if self.passes else None

    @property
    def won(self) -> float | None:
        """Times as fast as single steps, by what passes cost."""
        return self.tokens / self.cost if self.cost else None

    def __add__(self, other: Given) -> Given:
        return Given(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def add(self, environment: Mapping[str, str], new_tokens: int | None) -> None:
        """Add a page by what its environment says; one without passes gives nothing."""
        try:
            passes, accepted = (int(environment[f"draft_{name}"]) for name in ("passes", "accepted"))
            won = float(environment["draft_won"])
        except (KeyError, ValueError):
            return
        self.passes, self.accepted = self.passes + passes, self.accepted + accepted
        if new_tokens is not None and won > 0:
            self.tokens, self.cost = self.tokens + new_tokens - 1, self.cost + (new_tokens - 1) / won

    def document(self) -> dict[str, Any] | None:
        """As JSON; None where no page had passes."""
        if not self.passes:
            return None
        return {
            "passes": self.passes, "accepted": self.accepted, "tokens_a_pass": self.tokens_a_pass,
            "won": self.won,
        }  # fmt: skip

    @property
    def words(self) -> str:
        """For people; empty where no page had passes."""
        if self.tokens_a_pass is None:
            return ""
        faster = f", decoding some {self.won:.2f}x as fast" if self.won else ""
        return f"drafts: {self.tokens_a_pass:.2f} tokens a pass{faster}"


def simulated(true: Sequence[int], draft: Sequence[int] | None, rows: int | None = None) -> Given:
    """Simulate what a draft would give for these new tokens: in passes of `rows`, by the pace where that is
    None.

    None is a draft of the page's own text. Nothing is computed but what would be accepted: groups follow one
    another without the delay of one group that the engine has.
    """
    place, pace, given = Place(draft), Pace(hopeful=draft is not None), Given(tokens=max(len(true) - 1, 0))
    place.follow(true[:1])
    known = 1
    while known < len(true):
        now = rows or pace.rows
        if now == 1:
            some = min(STEPS_A_GROUP, len(true) - known)
            right = sum(place.follow(true[: known + n + 1]) for n in range(some))
            known, given.cost = known + some, given.cost + some
            pace.took(right, some - right)
            continue
        as_drafted = missed = 0
        for _ in range(PASSES_A_GROUP):
            if known >= len(true):
                break
            right = place.agreed(true, known, now)
            taken = min(right + 1, now, len(true) - known)
            place.take(true[: known + taken], right < taken)
            known += taken
            given.passes, given.accepted = given.passes + 1, given.accepted + taken - 1
            given.cost += COSTS[now]
            as_drafted, missed = as_drafted + right, missed + (right < taken)
        pace.took(as_drafted, missed)
    return given

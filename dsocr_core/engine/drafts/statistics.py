"""Statistics of drafts, over pages that had one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WORTH_IT = 0.6
"""Acceptance rate below which a single page is read faster without its draft."""


@dataclass
class DraftStatistics:
    """Sums over pages, from the environments of their results."""

    passes: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, environment: Mapping[str, str]) -> None:
        """Add a page. One without passes adds nothing."""
        counts = [environment.get(f"draft_{name}", "") for name in ("passes", "drafted", "accepted")]
        if all(count.isdecimal() for count in counts):
            self.passes += int(counts[0])
            self.drafted += int(counts[1])
            self.accepted += int(counts[2])

    @property
    def tokens_a_pass(self) -> float | None:
        """Mean tokens of a pass; None without passes."""
        return 1 + self.accepted / self.passes if self.passes else None

    @property
    def acceptance(self) -> float | None:
        """Share of the drafted tokens that were accepted; None where none was proposed."""
        return self.accepted / self.drafted if self.drafted else None

    def document(self) -> dict[str, Any] | None:
        """JSON form of the statistics; None without passes."""
        if not self.passes:
            return None
        return {
            "passes": self.passes, "drafted": self.drafted, "accepted": self.accepted,
            "tokens_a_pass": self.tokens_a_pass, "acceptance": self.acceptance,
        }  # fmt: skip

    @property
    def words(self) -> str:
        """Statistics as a sentence; empty without passes."""
        if self.tokens_a_pass is None:
            return ""
        rate = "" if self.acceptance is None else f", {self.acceptance:.0%} of the drafted tokens accepted"
        return f"drafts: {self.tokens_a_pass:.2f} tokens a pass{rate}"

"""Ties among the divergences of a run, and when that is a finding.

A tie explains one divergence: near a tie of two logits, rounding alone may choose. It does not explain a
habit. A backend that rounds differently in one operation diverges at a tie on every page: so did the eager
engine on 12 of 12 pages while its quick GELU rounded to bfloat16 at each step, where the published code
computes it in float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dsocr_core.reading.parity_records import ParityReport

FEWEST_TIES = 2
"""So many ties on one run are a finding."""


@dataclass
class Ties:
    """Counts of one run, page by page."""

    pages: int = 0
    """Pages whose tokens are known on both sides."""
    divergences: int = 0
    ties: int = 0
    """Those of the divergences that rounding alone can explain."""
    other_settings: int = 0
    """Divergences on pages whose settings differ, which explains them: no tie is counted there."""

    def add(self, report: ParityReport | None) -> None:
        """Count a page; None is a page that was not compared."""
        if report is None or report.tokens_equal is None:
            return
        self.pages += 1
        if (divergence := report.first_divergence) is not None:
            self.divergences += 1
            if report.input_parity is False:
                self.other_settings += 1
            else:
                self.ties += divergence.margins is not None and divergence.margins.tie

    @property
    def finding(self) -> str | None:
        """Say what this many ties mean, in words; None below `FEWEST_TIES`."""
        if self.ties < FEWEST_TIES:
            return None
        if self.ties == self.divergences:
            what = f"All {self.ties} divergences (on {self.pages} pages) are ties"
        else:
            what = f"{self.ties} of {self.divergences} divergences (on {self.pages} pages) are ties"
        return (
            f"{what}. That many are a finding: a tie explains one divergence, not {self.ties}, and a "
            "systematic rounding difference looks exactly like this. "
            "Search for the first stage whose output differs."
        )


def count_ties(reports: Iterable[ParityReport | None]) -> Ties:
    """The ties of a run's pages."""
    counted = Ties()
    for report in reports:
        counted.add(report)
    return counted


def ties_document(ties: Ties) -> dict[str, Any]:
    """The counts as JSON-ready values: pages, divergences, ties, finding (null where there is none)."""
    return asdict(ties) | {"finding": ties.finding}

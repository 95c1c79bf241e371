"""Outcome of one page: the results of its backends and their parity."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from dsocr_core.reading.differences import states
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import (
    Difference,
    ParityReport,
    Tolerance,
    Verdict,
    Where,
    in_order,
    sentences,
)
from dsocr_core.reading.records import SIDES, OcrRequest, OcrResult, Side

_MOST_OF_AN_ERROR = 300


@dataclass(frozen=True)
class Comparison:
    """Outcome of one page. A side that was not asked for or that failed has no result."""

    request: OcrRequest
    a: OcrResult | None = None
    b: OcrResult | None = None
    errors: dict[Side, str] = field(default_factory=dict)
    recorded_at: str | None = None
    """ISO 8601 UTC time when everything here is from the result cache; None when it was run."""
    tolerance: Tolerance = field(default_factory=Tolerance)

    @functools.cached_property
    def report(self) -> ParityReport | None:
        """Parity of both results; None unless both sides have one."""
        return compare_results(self.a, self.b, self.tolerance) if self.a and self.b else None

    @property
    def verdict(self) -> Verdict:
        """The report's; not comparable where a side has no result."""
        return self.report.verdict if self.report else "not_comparable"

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The report's; why there is none where a side has no result, and how the other ended."""
        if self.report is not None:
            return self.report.differences
        failed = [
            Difference("failed", f"{side.upper()}: {error[:_MOST_OF_AN_ERROR]}", where=Where(side))
            for side, error in self.errors.items()
        ]
        return in_order([*failed, *states(self.a, self.b)[0]])

    @property
    def reasons(self) -> tuple[str, ...]:
        """The differences as one sentence a kind."""
        return tuple(sentences(self.differences))

    @property
    def compared(self) -> bool:
        """Tell whether both sides were asked for: each has a result or an error."""
        return {*self.results, *self.errors} == {*SIDES}

    @property
    def results(self) -> dict[Side, OcrResult]:
        """The results that are there, A's first."""
        return {side: result for side in SIDES if (result := self.a if side == "a" else self.b) is not None}

    def joined(self, later: Comparison) -> Comparison:
        """One comparison of the sides of both; where both have one, the later."""
        return replace(
            later, a=later.a or self.a, b=later.b or self.b, errors={**self.errors, **later.errors}
        )

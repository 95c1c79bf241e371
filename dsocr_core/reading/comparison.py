"""Outcome of one page: the results of its backends and their parity."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from dsocr_core.reading.parity import parity
from dsocr_core.reading.parity_records import ParityReport, Tolerance, Verdict
from dsocr_core.reading.records import SIDES, OcrRequest, OcrResult, Side


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
        return parity(self.a, self.b, self.tolerance) if self.a and self.b else None

    @property
    def verdict(self) -> Verdict:
        """The report's; not comparable where a side has no result."""
        return self.report.verdict if self.report else "not_comparable"

    @property
    def reasons(self) -> tuple[str, ...]:
        """List what differs, the root cause first; why there is no report where a side has no result."""
        return self.report.reasons if self.report else tuple(dict.fromkeys(self.errors.values()))

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

"""What became of one page: the results of its backends and their parity."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from dsocr_core.outputs.parity import parity
from dsocr_core.parity_records import ParityReport
from dsocr_core.records import OcrRequest, OcrResult, Road


@dataclass(frozen=True)
class Comparison:
    """What became of one page. A road that was not asked for or that failed has no result."""

    request: OcrRequest
    ours: OcrResult | None = None
    vendor: OcrResult | None = None
    errors: dict[Road, str] = field(default_factory=dict)
    recorded_at: str | None = None
    """ISO 8601 UTC time when everything here was found again instead of run; None when it was run."""

    @functools.cached_property
    def report(self) -> ParityReport | None:
        """Parity of both results; None unless both roads have one."""
        return parity(self.ours, self.vendor) if self.ours and self.vendor else None

    def joined(self, later: Comparison) -> Comparison:
        """One comparison of the roads of both; where both have one, the later."""
        return replace(
            later,
            ours=later.ours or self.ours,
            vendor=later.vendor or self.vendor,
            errors={**self.errors, **later.errors},
        )

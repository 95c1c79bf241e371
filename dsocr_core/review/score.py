"""Score of a page for the review queue: a sum whose parts are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dsocr_core.reading.parity_records import BoxPair, ParityReport, Verdict
from dsocr_core.review.page import Difference, Kind, ReadingOrder, shared

FAILED, NOT_COMPARED = 1000.0, 1500.0
"""A page that differs comes before all that pass; one that cannot be compared before those."""
ABSENT = 0.5
"""A page that only one run has is no difference of what was read: it comes after all that are."""

FOUND, WHOLE = 20.0, 100.0
"""Any difference of boxes, text or order counts `FOUND`; to it comes up to `WHOLE` by how much differs. Both
together outweigh what tokens, inputs and small shifts can add up to (12)."""

_OF_VERDICT: dict[Verdict, float] = {"differs": FAILED, "not_comparable": NOT_COMPARED}
_ENDS: dict[Kind, float] = {"loop": 80.0, "truncated": 60.0, "no_eos": 40.0}


def score_parts(
    verdict: Verdict,
    report: ParityReport | None,
    found: Iterable[Difference],
    order: ReadingOrder,
    lengths: tuple[int, int],
) -> dict[str, float]:
    """Parts of the score that are not 0. `lengths` are both sides' new tokens.

    verdict: 1000 where it differs, 1500 where it cannot be compared, 0.5 where one run lacks the page. boxes:
    by the share of boxes that have no partner, moved or changed their label. text: by the character error
    rate. order: by edit distance per box, half as much. end: a loop 80, the token limit 60, no end token 40,
    the gravest of one side. inputs: 5. tokens: up to 5, more the earlier they diverge. shift: percent of the
    page, up to 2.
    """
    found = [difference for difference in found if not shared(difference)]
    kinds = {difference.kind for difference in found}
    parts = {
        "verdict": ABSENT if "absent" in kinds else _OF_VERDICT.get(verdict, 0.0),
        "boxes": _boxes(report.pairs) if report else 0.0,
        "text": FOUND + WHOLE * min(1.0, report.character_error_rate) if report and "text" in kinds else 0.0,
        "order": FOUND + WHOLE / 2 * min(1.0, order.normalised) if "order" in kinds else 0.0,
        "end": max((_ENDS.get(kind, 0.0) for kind in kinds), default=0.0),
        "inputs": 5.0 if "inputs" in kinds else 0.0,
        "tokens": _tokens(report, lengths),
        "shift": min(2.0, (report.max_coordinate_difference_percent or 0.0) if report else 0.0),
    }
    return {name: round(value, 3) for name, value in parts.items() if value}


def _boxes(pairs: Sequence[BoxPair]) -> float:
    bad = sum(pair.state != "matched" for pair in pairs)
    return FOUND + WHOLE * bad / len(pairs) if bad else 0.0


def _tokens(report: ParityReport | None, lengths: tuple[int, int]) -> float:
    if report is None or report.first_divergence is None:
        return 0.0
    return 2.0 + 3.0 * (1 - min(1.0, report.first_divergence.index / max(1, *lengths)))

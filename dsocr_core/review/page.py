"""One page of a review: what both sides read, and every difference between them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from dsocr_core.reading.parity import Comparison, with_page_size
from dsocr_core.reading.parity_records import (
    SETTINGS,
    BoxPair,
    Cause,
    Difference,
    Kind,
    ParityReport,
    Verdict,
    in_order,
    passes,
    sentences,
)
from dsocr_core.reading.records import SIDES, OcrResult

Names = tuple[str | None, str | None]


@dataclass(frozen=True)
class PageReview:
    """One page of a review. Immutable; made when the review is opened."""

    names: Names  # names of the page in A's run and in B's; None where a run does not have it
    comparison: Comparison
    """Both sides without their times and the tokens one by one: those are read when the page is shown."""
    report: ParityReport | None  # parity of A and B, the reference; None unless both sides have a result
    differences: tuple[Difference, ...]  # the comparison's, and that a run does not have the page

    @property
    def name(self) -> str:
        """Name of the page in the review: A's, else B's."""
        return next(name for name in self.names if name is not None)

    @property
    def a(self) -> OcrResult | None:
        return self.comparison.a

    @property
    def b(self) -> OcrResult | None:
        return self.comparison.b

    @property
    def sides(self) -> tuple[OcrResult, ...]:
        """The results that are there, the reference first."""
        return tuple(side for side in (self.b, self.a) if side is not None)

    @property
    def in_one_run(self) -> bool:
        """Tell whether only one side has the page: nothing is compared on it, and nothing fails."""
        return None in self.names

    @property
    def verdict(self) -> Verdict:
        """Verdict of the report; not comparable without one."""
        return self.report.verdict if self.report else "not_comparable"

    @property
    def fails(self) -> bool:
        """Tell whether a page that both runs have does not pass parity."""
        return not self.in_one_run and not passes(self.verdict)

    @property
    def changed(self) -> bool:
        """Tell whether outputs of the runs differ, not only inputs."""
        return not self.in_one_run and not SETTINGS.issuperset(self.kinds)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Differences, one sentence a kind."""
        return sentences(self.differences)

    def size_of(self, sheet: int) -> tuple[int, int] | None:
        """(width, height) in pixels of a page of the prompt, None where no side recorded it."""
        sizes = (side.sizes[sheet] for side in self.sides if sheet < len(side.sizes))
        return next((size for size in sizes if all(size)), None)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Causes, the surest first; none without a comparison."""
        return self.report.causes if self.report else ()

    def explained(self, words: str) -> PageReview:
        """Replace likely causes by one that was reproduced."""
        assert self.report is not None
        return replace(self, report=replace(self.report, causes=(Cause("reproduced", words),)))

    @property
    def pairs(self) -> tuple[BoxPair, ...]:
        return self.report.pairs if self.report else ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of difference on this page, in the order of the differences."""
        return tuple(dict.fromkeys(item.kind for item in self.differences))

    @property
    def text_differs(self) -> bool:
        """Tell whether the words differ, those of boxes that one side alone has among them."""
        if self.report is None or not self.report.character_error_rate:
            return False
        return "text" in self.kinds or any(pair.lone and pair.lone.text.strip() for pair in self.pairs)

    @functools.cached_property
    def score(self) -> float:
        """Weight with which the page deserves a review, 0 for identical pages.

        A page that cannot be compared comes first, then those that differ; then by the kinds of difference,
        by the share of boxes and text that differ, and by how early the tokens diverge.
        """
        if "absent" in self.kinds:
            return 0.5
        score = {"differs": 1000.0, "not_comparable": 1500.0}.get(self.verdict, 0.0)
        score += sum(_WEIGHTS.get(kind, 20.0) for kind in self.kinds)
        if self.report is not None:
            odd = sum(pair.state != "matched" for pair in self.pairs)
            score += 100 * odd / max(1, len(self.pairs))
            score += 100 * min(1.0, self.report.character_error_rate) * self.text_differs
            score += min(2.0, self.report.max_coordinate_difference_percent or 0.0)
            if (divergence := self.report.first_divergence) is not None:
                lengths = (len(side.token_ids or ()) for side in self.sides)
                score += 3 * (1 - min(1.0, divergence.index / max(1, *lengths)))
        return round(score, 3)


_WEIGHTS: dict[Kind, float] = {
    "truncated": 60, "inputs": 5, "same_text": 5,
    "moved": 2, "spelling": 2, "tokens": 2, "plain": 2,
}  # fmt: skip


def page_review(names: Names, comparison: Comparison) -> PageReview:
    """A page of a review. `names` are the page's in both runs."""
    a, b, report = comparison.a, comparison.b, comparison.report
    light = replace(comparison, a=_light(a, b), b=_light(b, a))
    absent = [
        Difference("absent", f"{side.upper()} does not have this page", where=side)
        for side, name in zip(SIDES, names, strict=True)
        if name is None
    ]
    differences = in_order([*comparison.differences, *absent])
    return PageReview(names, light, report, differences)


def _light(result: OcrResult | None, other: OcrResult | None) -> OcrResult | None:
    """A result without what is read when its page is shown, on a page of a known size if any side has it."""
    if result is None:
        return None
    if other is not None and not all(result.image_size) and all(other.image_size):
        result = with_page_size(result, other)
    return replace(result, token_texts=(), top_two=(), timings=())

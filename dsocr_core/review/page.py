"""One page of a review: what both sides read, and every difference between them with its evidence."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Literal

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity_records import BoxPair, InputLine, ParityReport, Verdict
from dsocr_core.reading.records import OcrResult

Where = Literal["a", "b", "both"]
Kind = Literal[
    "failed", "absent", "loop", "truncated", "no_eos", "missing", "extra", "relabelled", "moved", "order",
    "text", "inputs",
]  # fmt: skip
KINDS: dict[Kind, str] = {
    "failed": "could not be read",
    "absent": "in one run only",
    "loop": "repetition loop",
    "truncated": "truncated at the token limit",
    "no_eos": "no EOS",
    "missing": "box missing",
    "extra": "box extra",
    "relabelled": "box relabelled",
    "moved": "box moved",
    "order": "reading order changed",
    "text": "text differs",
    "inputs": "inputs differ",
}
"""Kinds of difference in words, gravest first: a page's first kind is its main one.

B is the reference: what B has and A lacks is missing, what only A has is extra.
"""

SizeClass = Literal["small", "medium", "large", "unknown"]
SIZE_CLASSES: dict[SizeClass, str] = {
    "small": "below 1 MP",
    "medium": "1 to 4 MP",
    "large": "4 MP and more",
    "unknown": "not recorded",
}
Evidence = dict[str, int | float | str]


@dataclass(frozen=True)
class Difference:
    """One difference. Box numbers are `Box.index` of that side.

    `where` says which side shows it: "b" for a missing box, "a" for an extra one, "both" for what concerns
    a pair, or for a state that both sides share (both truncated), which then weighs nothing.
    """

    kind: Kind
    where: Where
    words: str
    """One sentence for people; model text in it is plain text and not escaped."""
    boxes_a: tuple[int, ...] = ()
    boxes_b: tuple[int, ...] = ()
    evidence: Evidence = field(default_factory=dict)
    """moved: iou, shift_percent. missing, extra: label. relabelled: label_a, label_b, iou, shift_percent.
    text: distance, error_rate. order: inversions, edit_distance. loop: period, count, start, unit (characters
    of the text). truncated, no_eos: tokens, limit. inputs: lines."""


Cause = Literal[
    "prompt", "image", "exif", "preset", "grid", "scale", "ngram", "length", "loop", "dtype", "rotary",
    "attention", "tie", "not a tie",
]  # fmt: skip


@dataclass(frozen=True)
class Hint:
    """A likely cause of a page's differences."""

    cause: Cause
    words: str
    """One sentence: what differs and what it does."""


@dataclass(frozen=True)
class ReadingOrder:
    """Order of the matched boxes. All zero when the order is the same."""

    matched: int
    inversions: int
    """Pairs of matched boxes whose order is reversed."""
    edit_distance: int
    """Insertions, deletions and substitutions from A's order to B's (Levenshtein)."""
    out_of_order: tuple[int, ...]
    """Fewest of A's boxes that have to be moved for B's order, by `Box.index`."""

    @property
    def normalised(self) -> float:
        """Edit distance per matched box, 0..1."""
        return self.edit_distance / self.matched if self.matched else 0.0


@dataclass(frozen=True)
class BlockText:
    """The text of one pair (or lone box) on both sides; "" where the side has no such box."""

    pair: int | None
    """Index into `PageReview.pairs`; None for the text before the first block or on a page without blocks."""
    text_a: str
    text_b: str
    distance: int
    """Edits (Levenshtein, characters) from A's text to B's."""

    @property
    def equal(self) -> bool:
        return self.text_a == self.text_b


@dataclass(frozen=True)
class PageReview:
    """One page of a review. Immutable; made when the review is opened."""

    names: tuple[str | None, str | None]
    """Names of the page in A's run and in B's; None where a run does not have it."""
    comparison: Comparison
    """Both sides without their times and the tokens one by one: those are read when the page is shown."""
    report: ParityReport | None
    """Parity of A and B, the reference; None unless both sides have a result."""
    reasons: tuple[str, ...]
    differences: tuple[Difference, ...]
    """Gravest kind first."""
    order: ReadingOrder
    blocks: tuple[BlockText, ...]
    """Text block by block; only blocks that differ."""
    hints: tuple[Hint, ...]
    score: float
    """Score of how much it deserves a review, 0 for identical pages; the sum of `parts`."""
    parts: dict[str, float]
    """Parts of the score: verdict, boxes, text, order, end, inputs, tokens, shift."""

    @property
    def name(self) -> str:
        """The page's name in the review: A's, or B's where only B has it."""
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
        """Tell whether only one side has the page: there is nothing to compare on it, and nothing that
        fails.
        """
        return None in self.names

    @property
    def verdict(self) -> Verdict:
        """The report's; not comparable where there is none."""
        return self.report.verdict if self.report else "not_comparable"

    @property
    def size(self) -> tuple[int, int] | None:
        """(width, height) in pixels, None where no side recorded it."""
        return self.size_of(0)

    def size_of(self, sheet: int) -> tuple[int, int] | None:
        """The same of one of several pages of a prompt."""
        sizes = (side.sizes[sheet] for side in self.sides if sheet < len(side.sizes))
        return next((size for size in sizes if all(size)), None)

    @property
    def pairs(self) -> tuple[BoxPair, ...]:
        return self.report.pairs if self.report else ()

    @property
    def inputs(self) -> tuple[InputLine, ...]:
        """Input parity, line by line; empty without a comparison."""
        return self.report.inputs if self.report else ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of difference on this page, gravest first, without states that both sides share."""
        return tuple(dict.fromkeys(item.kind for item in self.differences if not shared(item)))

    @property
    def marks(self) -> frozenset[Kind]:
        """Find which of loop, truncated and no_eos hold on either side, shared or not."""
        return frozenset(item.kind for item in self.differences if item.kind in STATES)

    @functools.cached_property
    def labels(self) -> frozenset[str]:
        """Labels of all boxes of both sides."""
        if self.report is not None:
            return frozenset(box.label for pair in self.pairs for box in (pair.a, pair.b) if box)
        return frozenset(box.label for side in self.sides for box in side.boxes)

    @property
    def preset(self) -> str | None:
        return next((side.request.preset for side in reversed(self.sides) if side.request.preset), None)

    @property
    def size_class(self) -> SizeClass:
        if self.size is None:
            return "unknown"
        pixels = self.size[0] * self.size[1]
        return "small" if pixels < 1_000_000 else "medium" if pixels < 4_000_000 else "large"


STATES: frozenset[Kind] = frozenset({"loop", "truncated", "no_eos"})
"""Kinds that describe how a side ended; both sides may share them."""


def shared(difference: Difference) -> bool:
    """Tell whether both sides show the same state, so that it is no difference."""
    return difference.kind in STATES and difference.where == "both"

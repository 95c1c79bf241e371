"""One page of a review: what both sides read, and every difference between them with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dsocr_core.markup import Box
from dsocr_core.parity_records import BoxPair, InputLine, ParityReport, Verdict
from dsocr_core.records import OcrResult

Letter = Literal["a", "b"]
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
    "text": "text changed",
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
class PageSide:
    """What one side recorded of a page. What was not recorded is None or empty."""

    letter: Letter
    page: str
    """The page's name in this side's run."""
    run_id: str
    backend: str | None
    error: str | None = None
    text_raw: str | None = None
    boxes: tuple[Box, ...] = ()
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    new_tokens: int | None = None
    width: int | None = None
    """Pixels after EXIF orientation."""
    height: int | None = None
    path: str | None = None
    sha256: str | None = None
    source: str | None = None
    preset: str | None = None
    plain: bool = False
    """Whether the text is a `result.mmd` without markup: an imported output folder has nothing else."""


@dataclass(frozen=True)
class PageReview:
    """One page of a review. Immutable; made when the review is opened."""

    name: str
    """The page's name in the review: A's, or B's where only B has it."""
    a: PageSide | None
    b: PageSide | None
    report: ParityReport | None
    """Parity of A and B, the reference; None unless both sides have a text."""
    verdict: Verdict
    """The report's; not comparable where there is none."""
    reasons: tuple[str, ...]
    differences: tuple[Difference, ...]
    """Gravest kind first."""
    order: ReadingOrder
    blocks: tuple[BlockText, ...]
    """Text block by block; only blocks that differ."""
    hints: tuple[Hint, ...]
    score: float
    """How much it deserves a review, 0 for identical pages; the sum of `parts`."""
    parts: dict[str, float]
    """What the score is made of: verdict, boxes, text, order, end, inputs, tokens, shift."""

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
        """Which of loop, truncated and no_eos hold on either side, shared or not."""
        return frozenset(item.kind for item in self.differences if item.kind in STATES)

    @property
    def labels(self) -> frozenset[str]:
        """Labels of all boxes of both sides."""
        return frozenset(box.label for side in (self.a, self.b) if side for box in side.boxes)

    @property
    def preset(self) -> str | None:
        return next((side.preset for side in (self.a, self.b) if side and side.preset), None)

    @property
    def size_class(self) -> SizeClass:
        side = next((side for side in (self.b, self.a) if side and side.width and side.height), None)
        if side is None or not side.width or not side.height:
            return "unknown"
        pixels = side.width * side.height
        return "small" if pixels < 1_000_000 else "medium" if pixels < 4_000_000 else "large"


STATES: frozenset[Kind] = frozenset({"loop", "truncated", "no_eos"})
"""Kinds that describe how a side ended; both sides may share them."""


def shared(difference: Difference) -> bool:
    """Whether both sides show the same state, so that it is no difference."""
    return difference.kind in STATES and difference.where == "both"


# --- read when a page is shown --------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A token the model might have written: its id, its text if known, its logit."""

    id: int
    text: str | None
    logit: float


@dataclass(frozen=True)
class Step:
    """One new token. `text` is None and `top` empty when they were not recorded."""

    index: int
    id: int
    text: str | None
    top: tuple[Candidate, ...]
    """The two likeliest, likeliest first."""
    differs: bool
    """Whether the other side has another token (or none) at this index."""


@dataclass(frozen=True)
class FirstDivergence:
    """The first new token in which the sides differ, and the tokens around it on each side."""

    index: int
    box_a: int | None
    """`Box.index` on A in whose block it lies, None before the first."""
    box_b: int | None
    a: tuple[Step, ...]
    b: tuple[Step, ...]


@dataclass(frozen=True)
class PageDetail:
    """A page as the viewer and the tabs of Compare take it.

    The results hold what was recorded; None is what was not. `PageReview.inputs` says more of the inputs than
    they do, where a run recorded only some of them.
    """

    page: PageReview
    result_a: OcrResult | None
    result_b: OcrResult | None
    divergence: FirstDivergence | None

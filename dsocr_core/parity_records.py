"""What a comparison of two results says: verdict, box pairs, divergence, inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsocr_core.records import TopTwo

MatchState = Literal["matched", "moved", "relabelled", "only_a", "only_b"]


Verdict = Literal["pass", "fail"]


@dataclass(frozen=True)
class Box:
    """One box of a block. Coordinates are pixels of the EXIF-corrected page, x1 <= x2, y1 <= y2."""

    index: int
    label: str
    x1: int
    y1: int
    x2: int
    y2: int
    text: str
    """The segment that follows the block in the text."""
    coordinates: tuple[float, float, float, float]
    """As written by the model, in 0..999 of the page's sides."""


@dataclass(frozen=True)
class BoxPair:
    """One row of the box comparison; an absent side is None."""

    state: MatchState
    a: Box | None
    b: Box | None
    iou: float | None
    shift_percent: float | None
    """Largest coordinate difference in percent of the image side."""


@dataclass(frozen=True)
class InputDifference:
    """One line of input parity. A line that does not decide is shown, but both sides may differ in it."""

    name: str
    a: str
    b: str
    equal: bool
    decides: bool = True


@dataclass(frozen=True)
class Margins:
    """What both backends' two best logits say of the step in which their tokens part."""

    a: TopTwo | None
    """None when that backend did not record them; at least one did."""
    b: TopTwo | None
    dtype: str
    """The coarser of both backends' number types."""
    places: float
    """How far the two tokens' difference of logits moved from one backend to the other: the sum of
    both margins, in places of that type (`outputs.margins`)."""
    tie: bool
    """Whether rounding alone can have parted them."""


@dataclass(frozen=True)
class Divergence:
    """The first new token in which the two backends differ."""

    index: int
    text_a: str
    text_b: str
    context: str
    """The common text just before."""
    box_index: int | None
    """Index of our box in whose block it lies, None before the first."""
    margins: Margins | None = None
    """None when neither backend recorded its two best logits, and when one of them had ended there."""


@dataclass(frozen=True)
class ParityReport:
    """What two results have in common. Made by `outputs.parity.parity`, a pure function."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """Why it fails, one sentence each; empty on pass."""
    pairs: tuple[BoxPair, ...]
    boxes_a: int
    boxes_b: int
    boxes_matched: int
    max_coordinate_difference_percent: float | None
    mean_coordinate_difference_percent: float | None
    tokens_equal: bool
    first_divergence: Divergence | None
    character_error_rate: float
    inputs: tuple[InputDifference, ...]

    @property
    def input_parity(self) -> bool:
        return all(line.equal for line in self.inputs if line.decides)

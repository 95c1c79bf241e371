"""Records of a comparison of two results: verdict, box pairs, divergence, inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.markup import Box
from dsocr_core.reading.records import TopTwo

MatchState = Literal["matched", "moved", "relabelled", "only_a", "only_b"]
Verdict = Literal["identical", "within_tolerance", "differs", "not_comparable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""Best first."""

VERDICT_WORDS: dict[Verdict, str] = {verdict: verdict.replace("_", " ") for verdict in VERDICTS}

NOT_KNOWN = "not known"
"""Words where a backend could not tell, or a run did not record it."""


def passes(verdict: Verdict) -> bool:
    """Tell whether a page passes: identical, or within tolerance."""
    return verdict in ("identical", "within_tolerance")


@dataclass(frozen=True)
class Tolerance:
    """By how much two results may differ and still pass.

    Args:
        boxes: boxes more or less, without a partner, or under another label
        shift_percent: largest difference of matched boxes' coordinates, in percent of the page's side
        character_error_rate: edits per character of the text; 0.02 is 2 %. Blanks and the spelling of markup
            are no difference, whatever it is
    """

    boxes: int = 1
    shift_percent: float = 2.0
    character_error_rate: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < float("inf"):
                raise DsocrError(f"tolerance.{name} is {value}: give 0 or more")


@dataclass(frozen=True)
class BoxPair:
    """One row of the box comparison; an absent side is None."""

    state: MatchState
    a: Box | None
    b: Box | None
    iou: float | None
    shift_percent: float | None
    """Largest coordinate difference in percent of the image side."""

    @property
    def page(self) -> int:
        """Number of its page among those of the prompt, from 0."""
        box = self.a or self.b
        assert box is not None
        return box.page


InputState = Literal["equal", "differs", "not known"]


@dataclass(frozen=True)
class InputLine:
    """One line of input parity; a side that is not known is None, and the state is then "not known"."""

    name: str
    a: str | None
    b: str | None
    state: InputState
    decides: bool = True
    """False for a line that is shown only: both sides may differ in it."""

    @property
    def unequal(self) -> bool:
        """Tell whether the sides are known to differ in a line that decides."""
        return self.decides and self.state == "differs"


def input_line(name: str, a: str | None, b: str | None, decides: bool = True) -> InputLine:
    """A line whose state follows from its texts."""
    state: InputState = "not known" if a is None or b is None else "equal" if a == b else "differs"
    return InputLine(name, a, b, state, decides)


@dataclass(frozen=True)
class Margins:
    """Margins of both sides' two best logits in the step in which their tokens diverge."""

    a: TopTwo | None
    """None when that side did not record them; at least one did."""
    b: TopTwo | None
    dtype: str
    """The coarser of both sides' number types."""
    ulps: float
    """By how much the difference of the two tokens' logits changed from one side to the other: the sum of
    both margins, in units in the last place of that type (`reading.margins`)."""
    tie: bool
    """True where rounding alone can explain the divergence."""


@dataclass(frozen=True)
class Divergence:
    """The first new token in which A and B differ."""

    index: int
    text_a: str
    text_b: str
    context: str
    """The common text just before."""
    box_a: int | None
    """Index of A's box in whose block it lies, None before the first."""
    box_b: int | None
    margins: Margins | None = None
    """None when neither side recorded its two best logits, and when one of them had ended there."""


@dataclass(frozen=True)
class ParityReport:
    """Parity of two results. Made by `outputs.parity.parity`, a pure function."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """Differences, one sentence each, the root cause first; empty only where both are identical."""
    pairs: tuple[BoxPair, ...]
    boxes_a: int
    boxes_b: int
    boxes_matched: int
    max_coordinate_difference_percent: float | None
    mean_coordinate_difference_percent: float | None
    tokens_equal: bool | None
    """None where a side does not know its tokens."""
    first_divergence: Divergence | None
    character_error_rate: float
    inputs: tuple[InputLine, ...]
    boxes_known: bool = True
    """True where both sides tell boxes; where one does not, texts without boxes were compared."""

    @property
    def input_parity(self) -> bool | None:
        """Tell whether all lines that decide are equal; None where none differs and not all are known."""
        return input_parity(self.inputs)


def input_parity(lines: tuple[InputLine, ...]) -> bool | None:
    """Tell whether all lines that decide are equal; None where none differs and not all are known."""
    if any(line.unequal for line in lines):
        return False
    deciding = [line for line in lines if line.decides]
    return True if deciding and all(line.state == "equal" for line in deciding) else None

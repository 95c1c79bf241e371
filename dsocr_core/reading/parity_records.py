"""Records of a comparison of two results: verdict, differences, causes, box pairs, inputs, divergence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, get_args

from dsocr_core.base.specs import check_values
from dsocr_core.reading.jsonable import to_jsonable
from dsocr_core.reading.markup import Box
from dsocr_core.reading.records import Side, TopTwo

RULE = 4
"""Number of the rule of verdicts that judged a run; 2 and 3 allowed 2 % of the characters."""

Verdict = Literal["identical", "within_tolerance", "differs", "not_comparable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # best first
VERDICT_WORDS: dict[Verdict, str] = {verdict: verdict.replace("_", " ") for verdict in VERDICTS}
NOT_KNOWN = "not known"  # where a backend could not tell, or a run did not record it


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
        check_values(self, "tolerance.")


# --- differences and their causes -----------------------------------------------------------------

Kind = str
KINDS: dict[Kind, str] = {
    "failed": "could not be read",
    "absent": "in one run only",
    "pages": "other pages",
    "truncated": "truncated at the token limit",
    "ended": "end not known",
    "missing": "box missing",
    "extra": "box extra",
    "relabelled": "box relabelled",
    "text": "text differs",
    "lines": "line ends of lists or headings differ",
    "table": "rows or cells of a table differ",
    "moved": "box moved",
    "order": "reading order changed",
    "spelling": "blanks or spelling of markup differ",
    "tokens": "other tokens",
    "plain": "boxes not known",
    "inputs": "settings differ",
    "same_text": "same text, different settings",
}
"""Kinds of difference in words, gravest first. What only B, the reference, has is missing."""
_RANK = {kind: number for number, kind in enumerate(KINDS)}
SETTINGS: frozenset[Kind] = frozenset({"inputs", "same_text"})  # kinds about what went in


@dataclass(frozen=True)
class Difference:
    """One difference of two results. Its words are for people; text of the model in them is not escaped."""

    kind: Kind
    words: str
    within: bool = False  # tolerance
    where: Side | Literal["both"] = "both"  # the side that shows it, and its boxes by `Box.index`
    boxes_a: tuple[int, ...] = ()
    boxes_b: tuple[int, ...] = ()
    evidence: Mapping[str, int | float | str] = field(default_factory=dict)  # its figures, by name
    texts: tuple[str, str] | None = field(default=None, repr=False)  # both texts, where these differ

    @property
    def sentence(self) -> str:
        """The kind and what differs: `text differs: box 3 (text), 21-30 -> 21:30`."""
        return f"{KINDS[self.kind]}: {self.words}"

    def document(self) -> dict[str, Any]:
        """JSON-ready values, without the texts."""
        return {name: to_jsonable(value) for name, value in vars(self).items() if name != "texts"}


def in_order(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Order: beyond tolerance first, then the gravest."""
    return tuple(sorted(differences, key=lambda item: (item.within, _RANK[item.kind])))


def sentences(differences: Sequence[Difference], most: int = 3) -> tuple[str, ...]:
    """Differences in order as one sentence a kind, with the number where there are several."""
    found = []
    for (kind, _), group in groupby(differences, key=lambda item: (item.kind, item.within)):
        same = [item.words for item in group]
        count = f" ({len(same)})" if len(same) > 1 else ""
        more = f"; and {len(same) - most} more" if len(same) > most else ""
        found.append(f"{KINDS[kind]}{count}: {'; '.join(same[:most])}{more}")
    return tuple(found)


@dataclass(frozen=True)
class Cause:
    """A likely cause of a page's differences."""

    name: str  # `reproduced`, `tie`, `not a tie`, or that of what differs
    words: str  # one sentence: what differs and what it does

    @property
    def sentence(self) -> str:
        """The cause, called known or likely."""
        return f"{'cause' if self.name == 'reproduced' else 'likely cause'}: {self.words}"

    def document(self) -> dict[str, Any]:
        return {"cause": self.name, "words": self.words}


# --- boxes and inputs -----------------------------------------------------------------------------

MatchState = Literal["matched", "moved", "relabelled", "only_a", "only_b"]


@dataclass(frozen=True)
class BoxPair:
    """One row of the box comparison; an absent side is None."""

    state: MatchState
    a: Box | None
    b: Box | None
    iou: float | None = None
    shift_percent: float | None = None  # largest coordinate difference in percent of the image side

    @property
    def lone(self) -> Box | None:
        """The box that has no partner."""
        return (self.a or self.b) if self.a is None or self.b is None else None

    @property
    def page(self) -> int:
        """Number of its page among those of the prompt, from 0."""
        box = self.a or self.b
        return box.page if box else 0


@dataclass(frozen=True)
class InputLine:
    """One line of input parity; a side that is not known is None, and the state is then "not known"."""

    name: str
    a: str | None
    b: str | None
    decides: bool = True  # False for a line that is shown only: both sides may differ in it

    @property
    def state(self) -> Literal["equal", "differs", "not known"]:
        if self.a is None or self.b is None:
            return "not known"
        return "equal" if self.a == self.b else "differs"

    @property
    def differs(self) -> bool:
        return self.state == "differs"

    @property
    def unequal(self) -> bool:
        """Tell whether the sides are known to differ in a line that decides."""
        return self.decides and self.differs


# --- tokens: margins and ties ---------------------------------------------------------------------

TIE_ULPS = 4.0
"""Most ULPs of the coarser type by which the difference of two logits may change at a tie: two for each.
Measured between two orders of attention: 2.6 in bfloat16, 5 in float32 (99th percentile, 320 tokens)."""
_TYPES = {"bfloat16": (7, -126), "float16": (10, -14), "float32": (23, -126)}
"""Stored bits of the significand and least exponent of normal numbers, coarsest type first."""


def ulp(logit: float, dtype: str) -> float:
    """Unit in the last place: the distance between that type's numbers at the magnitude of this one."""
    bits, least = _TYPES[dtype]
    return math.ldexp(1.0, (max(math.frexp(logit)[1] - 1, least) if logit else least) - bits)


@dataclass(frozen=True)
class Margins:
    """Both sides' two best logits in the step in which their tokens diverge; at least one recorded them.

    If one side chose x and the other y, the difference of their logits changed by both margins, or by more.
    """

    a: TopTwo | None
    b: TopTwo | None
    dtype: str  # the coarser of both sides' number types
    ulps: float  # the sum of both margins, in units in the last place of that type
    tie: bool  # True where rounding alone can explain the divergence

    @classmethod
    def of(cls, a: TopTwo | None, b: TopTwo | None, *dtypes: str | None) -> Margins | None:
        """The margins under the sides' number types; None when nothing was recorded, or no type is known."""
        found = [top for top in (a, b) if top is not None]
        dtype = next((name for name in _TYPES if name in dtypes), None)
        if not found or dtype is None:
            return None
        largest = max(abs(logit) for top in found for logit in top.logits)
        ulps = sum(top.margin for top in found) / ulp(largest, dtype)
        return cls(a, b, dtype, ulps, ulps <= TIE_ULPS)

    @property
    def words(self) -> str:
        """One clause: "a tie: margin 0.125 of A and 0 of B, together 1 ULP of bfloat16"."""
        parts = [
            f"{top.margin:.4g} of {side}" if top else f"not recorded of {side}"
            for side, top in (("A", self.a), ("B", self.b))
        ]
        count = f"{'' if self.a and self.b else 'at least '}{self.ulps:.3g} ULP of {self.dtype}"
        return f"{'a tie' if self.tie else 'not a tie'}: margin {' and '.join(parts)}, together {count}"

    def document(self) -> dict[str, Any]:
        """JSON-ready values, each side with its margin."""
        tops = {"a": self.a, "b": self.b}
        sides = {side: top and to_jsonable(top) | {"margin": top.margin} for side, top in tops.items()}
        return {**to_jsonable(self), **sides}


@dataclass(frozen=True)
class Divergence:
    """The first new token in which A and B differ."""

    index: int
    context: str  # the common text just before
    box_a: int | None  # index of A's box in whose block it lies, None before the first
    margins: Margins | None = None  # None where no side recorded its logits, or one had ended


@dataclass(frozen=True)
class ParityReport:
    """Parity of two results, as `reading.parity.compare_results` finds it."""

    verdict: Verdict
    differences: tuple[Difference, ...]  # beyond tolerance first; empty only where both are identical
    causes: tuple[Cause, ...]  # likely causes, the surest first
    pairs: tuple[BoxPair, ...]
    boxes_a: int
    boxes_b: int
    boxes_matched: int
    max_coordinate_difference_percent: float | None
    tokens_equal: bool | None  # None where a side does not know its tokens
    first_divergence: Divergence | None
    character_error_rate: float
    inputs: tuple[InputLine, ...]
    boxes_known: bool = True  # False where a side does not tell boxes: texts without boxes were compared

    @property
    def reasons(self) -> tuple[str, ...]:
        return sentences(self.differences)

    @property
    def input_parity(self) -> bool | None:
        """Tell whether all lines that decide are equal; None where none differs and not all are known."""
        if any(line.unequal for line in self.inputs):
            return False
        deciding = [line for line in self.inputs if line.decides]
        return True if deciding and all(line.state == "equal" for line in deciding) else None

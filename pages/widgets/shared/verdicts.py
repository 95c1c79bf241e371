"""The verdicts of parity on the pages: a word, a colour and a sign for each, never the colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["identical", "within", "differs", "none", "faster", "slower"]
"""A colour of the style sheet: green only for identical, amber, red, grey; two more for speeds."""


@dataclass(frozen=True)
class VerdictWords:
    """`word` stands on the strip, `words` in a sentence; `icon` is a sign that needs no colour."""

    word: str
    words: str
    tone: Tone
    icon: str


VERDICTS: dict[str, VerdictWords] = {
    "identical": VerdictWords("IDENTICAL", "identical", "identical", "="),
    "within_tolerance": VerdictWords("WITHIN TOLERANCE", "within tolerance", "within", "≈"),
    "differs": VerdictWords("DIFFERS", "differs", "differs", "≠"),
    "not_comparable": VerdictWords("NOT COMPARABLE", "not comparable", "none", "?"),
}
NO_EVIDENCE = VerdictWords("NO EVIDENCE", "no evidence", "none", "–")

_TWO_VALUES = {"pass": "identical", "fail": "differs"}  # until the core knows four verdicts; then remove


def verdict_words(verdict: str | None) -> VerdictWords:
    """The words for a verdict of the core; NO_EVIDENCE where there is none."""
    return VERDICTS.get(_TWO_VALUES.get(verdict or "", verdict or ""), NO_EVIDENCE)

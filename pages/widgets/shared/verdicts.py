"""The verdicts of parity on the pages: a word, a colour and a sign for each, never the colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dsocr_core.parity_records import VERDICT_WORDS, Verdict

Tone = Literal["identical", "within", "differs", "none", "faster", "slower"]
"""A colour of the style sheet: green only for identical, amber, red, grey; two more for speeds."""


@dataclass(frozen=True)
class VerdictWords:
    """`word` stands on the strip, `words` in a sentence; `icon` is a sign that needs no colour."""

    word: str
    words: str
    tone: Tone
    icon: str


def _words(verdict: Verdict, tone: Tone, icon: str) -> VerdictWords:
    words = VERDICT_WORDS[verdict]
    return VerdictWords(words.upper(), words, tone, icon)


VERDICTS: dict[Verdict, VerdictWords] = {
    "identical": _words("identical", "identical", "="),
    "within_tolerance": _words("within_tolerance", "within", "≈"),
    "differs": _words("differs", "differs", "≠"),
    "not_comparable": _words("not_comparable", "none", "?"),
}
NO_EVIDENCE = VerdictWords("NO EVIDENCE", "no evidence", "none", "–")


def verdict_words(verdict: Verdict | None) -> VerdictWords:
    """The words for a verdict of the core; NO_EVIDENCE where there is none."""
    return NO_EVIDENCE if verdict is None else VERDICTS[verdict]

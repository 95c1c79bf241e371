"""The verdicts on a page: words, colours and signs, and the answer that opens a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from dsocr_core.reading.parity_records import VERDICT_WORDS, Verdict

Tone = Literal["identical", "within", "differs", "none"]
"""A colour of the style sheet: green only for identical, amber, red, grey."""
Fact = tuple[str, str]
"""Name and value; the name may be empty."""


@dataclass(frozen=True)
class VerdictWords:
    """`words` say the verdict in a sentence; `icon` is a sign that needs no colour."""

    words: str
    tone: Tone
    icon: str


VERDICTS: dict[Verdict, VerdictWords] = {
    "identical": VerdictWords(VERDICT_WORDS["identical"], "identical", "="),
    "within_tolerance": VerdictWords(VERDICT_WORDS["within_tolerance"], "within", "≈"),
    "differs": VerdictWords(VERDICT_WORDS["differs"], "differs", "≠"),
    "not_comparable": VerdictWords(VERDICT_WORDS["not_comparable"], "none", "?"),
}


def verdict_html(verdict: Verdict, sentence: str, facts: Sequence[Fact] = (), note: str = "") -> str:
    """The answer of a page that was compared."""
    words = VERDICTS[verdict]
    return answer_html(f"{words.icon} {words.words.upper()}", words.tone, sentence, facts, note)


def answer_html(word: str, tone: Tone, sentence: str, facts: Sequence[Fact] = (), note: str = "") -> str:
    """A word with its colour and a sentence, under them the figures; all texts are escaped."""
    figures = [f"{escape(name)} <b>{escape(value)}</b>" if name else escape(value) for name, value in facts]
    line = "".join(f"<span class='dsocr-fact'>{each}</span>" for each in [*figures, escape(note)] if each)
    return (
        f"<div class='dsocr-answer'><span class='dsocr-word dsocr-{tone}'>{escape(word)}</span>"
        f"<p>{escape(sentence)}</p></div><div class='dsocr-strip dsocr-figures'>{line}</div>"
    )

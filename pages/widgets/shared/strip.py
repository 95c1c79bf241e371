"""The strip at the head of a view: a word with its colour and sign, then figures in one line."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

from dsocr_core.base.formatting import percent
from dsocr_core.reading.parity_records import NOT_KNOWN, VERDICT_WORDS, Verdict

if TYPE_CHECKING:
    from dsocr_core.reading.parity_records import ParityReport

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


# --- the strip ------------------------------------------------------------------------------------

Fact = tuple[str, str]
"""Name and value; the name may be empty."""


@dataclass(frozen=True)
class Strip:
    """Content of a strip, in the order it is shown; without a word only figures."""

    word: str
    tone: Tone
    facts: tuple[Fact, ...]
    note: str = ""
    """At the far end: where the figures come from."""
    reasons: tuple[str, ...] = ()
    """Below the strip: what differs, and the likely cause."""
    icon: str = ""


def strip_html(strip: Strip) -> str:
    """The strip as HTML made of our own words and escaped values."""
    facts = "".join(
        f"<span class='dsocr-fact'>{escape(name)} <b>{escape(value)}</b></span>"
        if name
        else f"<span class='dsocr-fact'>{escape(value)}</span>"
        for name, value in strip.facts
    )
    icon = f"<i aria-hidden='true'>{escape(strip.icon)}</i> " if strip.icon else ""
    word = (
        f"<span class='dsocr-word dsocr-{strip.tone}'>{icon}{escape(strip.word)}</span>" if strip.word else ""
    )
    note = f"<span class='dsocr-recorded'>{escape(strip.note)}</span>" if strip.note else ""
    return f"<div class='dsocr-strip'>{word}{facts}{note}</div>"


def reasons_html(reasons: tuple[str, ...]) -> str:
    """The line below a strip: a sentence each."""
    sentences = " ".join(f"{reason[:1].upper()}{reason[1:].rstrip('.')}." for reason in reasons)
    return f"<div class='dsocr-reasons'>{escape(sentences)}</div>"


_EQUAL = {True: "equal", False: "differ", None: "not known"}


def parity_facts(report: ParityReport) -> tuple[Fact, ...]:
    """The figures of a comparison, inputs first where they differ: what differs there explains the rest."""
    equal = "=" if report.boxes_a == report.boxes_b else "≠"
    divergence = report.first_divergence
    tokens = {True: "none", False: "not known", None: "not known"}[report.tokens_equal]
    inputs = ("inputs", _EQUAL[report.input_parity])
    boxes = f"{report.boxes_a} {equal} {report.boxes_b}" if report.boxes_known else NOT_KNOWN
    facts = (
        ("boxes", boxes),
        ("largest shift", percent(report.max_coordinate_difference_percent)),
        ("CER", percent(report.character_error_rate * 100)),
        ("first divergence", tokens if divergence is None else f"token {divergence.index:,}"),
    )
    return (inputs, *facts) if inputs[1] == "differ" else (*facts, inputs)


def verdict_html(
    word: Verdict | str, tone: Tone | None, sentence: str, facts: Sequence[Fact] = (), note: str = ""
) -> str:
    """The answer of a page: a verdict with its sentence, under it the figures; all texts are escaped.

    `tone` is that of the verdict unless given.
    """
    known = next((each for verdict, each in VERDICTS.items() if verdict == word), None)
    if known is not None:
        word, tone = f"{known.icon} {known.word}", tone or known.tone
    figures = [f"{escape(name)} <b>{escape(value)}</b>" if name else escape(value) for name, value in facts]
    figures += [escape(note)] if note else []
    line = "".join(f"<span class='dsocr-fact'>{figure}</span>" for figure in figures)
    return (
        f"<div class='dsocr-answer'><span class='dsocr-word dsocr-{tone or 'none'}'>{escape(word)}</span>"
        f"<p>{escape(sentence)}</p></div><div class='dsocr-strip dsocr-figures'>{line}</div>"
    )

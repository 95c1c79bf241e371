"""The strip at the head of a view: a word with its colour, then figures in one line."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from dsocr_core.parity_records import NOT_KNOWN
from dsocr_core.words import percent
from pages.widgets.shared.verdicts import Tone

if TYPE_CHECKING:
    from dsocr_core.parity_records import ParityReport

Fact = tuple[str, str]
"""Name and value; the name may be empty."""


@dataclass(frozen=True)
class Strip:
    """What a strip says, in the order it is shown; without a word only figures."""

    word: str
    tone: Tone
    facts: tuple[Fact, ...]
    note: str = ""
    """At the far end: where the figures come from."""
    reasons: tuple[str, ...] = ()
    """Below the strip: what differs, cause first."""
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
    """The line below a strip."""
    return f"<div class='dsocr-reasons'>{escape('; '.join(reasons))}</div>"


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
        ("first divergence", tokens if divergence is None else f"token {divergence.index}"),
    )
    return (inputs, *facts) if inputs[1] == "differ" else (*facts, inputs)

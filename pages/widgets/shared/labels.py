"""Names of sides, backends and stages on every page, verdicts, and the answer that opens a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

from dsocr_core.models.stages import COLOURS, INSIDE_PREFILL
from dsocr_core.reading.parity_records import VERDICT_WORDS, Verdict
from dsocr_core.reading.records import SIDES, VENDOR, BackendName, Side
from dsocr_core.runs.labels import VISION, short
from dsocr_core.settings import Settings
from pages.widgets.shared.plots import NEUTRAL

_BACKENDS = {"eager": "eager, ours", "fast": "fast, ours", VENDOR: "vendor, published code"}


def backend_words(backend: BackendName) -> str:
    """Name a backend and its maker: "eager, ours". Unknown ones have only a name."""
    return _BACKENDS.get(backend) or short(backend, 40)


def side_label(side: Side, backend: BackendName) -> str:
    """Name a side as over a pane: "A: eager, ours", "B: vendor, published code"."""
    return f"{side.upper()}: {backend_words(backend)}"


def side_labels(settings: Settings) -> dict[Side, str]:
    """The labels of both sides of a comparison under these settings."""
    return {side: side_label(side, settings.backend(side)) for side in SIDES}


def mark(text: str, most: int = 60) -> str:
    """Text for a chart, which reads HTML: shortened and escaped."""
    return escape(short(text, most))


# --- stages ---------------------------------------------------------------------------------------


def colour(stage: str) -> str:
    return "#3F8FC4" if stage == VISION else COLOURS.get(stage, NEUTRAL)


def stage_name(stage: str) -> str:
    """A stage's name with the one that it lies in."""
    return f"prefill › {stage}" if stage in (VISION, *INSIDE_PREFILL) else short(stage, 40)


# --- verdicts -------------------------------------------------------------------------------------

Tone = Literal["identical", "within", "differs", "none"]
"""A colour of the style sheet: green only for identical, amber, red, grey."""
Fact = tuple[str, str]
"""Name and value; the name may be empty."""


VERDICT_SIGNS: dict[Verdict, tuple[Tone, str]] = {
    "identical": ("identical", "="), "within_tolerance": ("within", "≈"), "differs": ("differs", "≠"),
    "not_comparable": ("none", "?"),
}  # fmt: skip
"""The colour of each, and a sign that needs none."""


def verdict_html(verdict: Verdict, sentence: str, facts: Sequence[Fact] = (), note: str = "") -> str:
    """The answer of a page that was compared."""
    tone, sign = VERDICT_SIGNS[verdict]
    return answer_html(f"{sign} {VERDICT_WORDS[verdict].upper()}", tone, sentence, facts, note)


def answer_html(word: str, tone: Tone, sentence: str, facts: Sequence[Fact] = (), note: str = "") -> str:
    """A word with its colour and a sentence, under them the figures; all texts are escaped."""
    figures = [f"{escape(name)} <b>{escape(value)}</b>" if name else escape(value) for name, value in facts]
    line = "".join(f"<span class='dsocr-fact'>{each}</span>" for each in [*figures, escape(note)] if each)
    return (
        f"<div class='dsocr-answer'><span class='dsocr-word dsocr-{tone}'>{escape(word)}</span>"
        f"<p>{escape(sentence)}</p></div><div class='dsocr-strip dsocr-figures'>{line}</div>"
    )

"""The verdict strip: whether both backends agree, with the numbers that say so."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

from dsocr_core.parity_records import ParityReport
from dsocr_core.records import BackendName
from pages.widgets.shared.formats import duration, moment, percent, speed_ratio
from pages.widgets.shared.runner import Known

if TYPE_CHECKING:
    from dsocr_core.outputs.comparison import Comparison

Tone = Literal["pass", "fail", "none"]


@dataclass(frozen=True)
class Strip:
    """The word, its tone, and (name, value) facts in the order they are shown."""

    word: str
    tone: Tone
    facts: tuple[tuple[str, str], ...]
    recorded: str = ""
    reasons: tuple[str, ...] = ()


def strip_of(known: Known) -> Strip:
    """What the strip says about a page; without results there is no evidence."""
    comparison = known.comparison
    if comparison is None:
        word = "CANCELLED" if known.cancelled else "NOT RUN"
        return Strip(word, "none", (("", "nothing is known about this page under these settings yet"),))
    recorded = f"recorded {moment(known.recorded_at)}" if known.recorded else ""
    if recorded and len(known.recorded) == 1 and comparison.a and comparison.b:
        recorded = f"{known.recorded[0]} {recorded}"
    if known.cancelled:
        recorded = f"cancelled; {recorded}" if recorded else "cancelled"
    report = comparison.report
    times = _times(comparison)
    if report is None:
        return Strip("NO VERDICT", "none", (*_missing(comparison), *times), recorded)
    return Strip(
        report.verdict.upper(), report.verdict, (*parity_facts(report), *times), recorded, report.reasons
    )


def parity_facts(report: ParityReport) -> tuple[tuple[str, str], ...]:
    equal = "=" if report.boxes_a == report.boxes_b else "≠"
    divergence = report.first_divergence
    return (
        ("boxes", f"{report.boxes_a} {equal} {report.boxes_b}"),
        ("largest shift", percent(report.max_coordinate_difference_percent)),
        ("CER", percent(report.character_error_rate * 100)),
        ("first divergence", "none" if divergence is None else f"token {divergence.index}"),
        ("inputs", "equal" if report.input_parity else "differ"),
    )


def _missing(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    have = [backend for backend in ("a", "b") if getattr(comparison, backend)]
    if not have:
        return (("", "neither backend has a result"),)
    return (("", f"only {have[0]} has a result; run both to compare"),)


def _times(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    backends: tuple[BackendName, ...] = ("a", "b")
    times = {backend: result.total_ms for backend in backends if (result := getattr(comparison, backend))}
    facts = tuple((backend, duration(ms)) for backend, ms in times.items())
    if len(times) == 2:
        return (*facts, ("ours is", speed_ratio(times["a"], times["b"])))
    return facts


def strip_html(strip: Strip) -> str:
    """The strip as HTML made of our own words and escaped values."""
    facts = "".join(
        f"<span class='dsocr-fact'>{escape(name)} <b>{escape(value)}</b></span>"
        if name
        else f"<span class='dsocr-fact'>{escape(value)}</span>"
        for name, value in strip.facts
    )
    recorded = f"<span class='dsocr-recorded'>{escape(strip.recorded)}</span>" if strip.recorded else ""
    return (
        f"<div class='dsocr-strip'><span class='dsocr-word dsocr-{strip.tone}'>{escape(strip.word)}</span>"
        f"{facts}{recorded}</div>"
    )

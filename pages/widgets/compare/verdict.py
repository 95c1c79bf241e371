"""Compare's strip: whether A and B agree on a page, with the figures that say so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from dsocr_core.base.formatting import duration, moment
from dsocr_core.reading.parity_records import with_cause
from dsocr_core.reading.records import Side
from pages.widgets.shared.labels import side_letter
from pages.widgets.shared.runner import PageResults
from pages.widgets.shared.strip import NO_EVIDENCE, Fact, Strip, parity_facts, verdict_words

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison


def strip_of(results: PageResults, labels: Mapping[Side, str]) -> Strip:
    """Make the strip of a page; without two results there is no evidence. `labels` are the sides'."""
    comparison = results.comparison
    if comparison is None:
        word = "CANCELLED" if results.cancelled else "NOT RUN"
        return Strip(word, "none", (("", "no result of this page under these settings yet"),))
    note = _note(results)
    report = comparison.report
    times = _times(comparison)
    if report is None:
        facts = (*_missing(comparison, labels), *times)
        return Strip(NO_EVIDENCE.word, NO_EVIDENCE.tone, facts, note, icon=NO_EVIDENCE.icon)
    words = verdict_words(report.verdict)
    facts = (*parity_facts(report), *times)
    return Strip(words.word, words.tone, facts, note, with_cause(report.reasons, report.causes), words.icon)


def _note(results: PageResults) -> str:
    if results.cancelled:
        day = f" Showing the result of {_day(results.recorded_at)}." if results.recorded else ""
        return f"Your run was cancelled.{day}"
    note = f"recorded {moment(results.recorded_at)}" if results.recorded else ""
    if note and len(results.recorded) < len(results.comparison.results if results.comparison else ()):
        note = f"{side_letter(results.recorded[0])} {note}"
    return note


def _day(when: str) -> str:
    """The day of a time as it is recorded: "22 Nov"."""
    found = datetime.fromisoformat(when)
    return f"{found.day} {found:%b}"


def _missing(comparison: Comparison, labels: Mapping[Side, str]) -> tuple[Fact, ...]:
    if not comparison.results:
        return (("", "neither side has a result"),)
    return (("", f"only {labels[next(iter(comparison.results))]} has a result; run both to compare"),)


def _times(comparison: Comparison) -> tuple[Fact, ...]:
    """Times of one run each, which say nothing of who is faster; a backend that tells no times has none."""
    times = {side: result.total_ms for side, result in comparison.results.items() if result.timings}
    return tuple((side_letter(side), f"{duration(ms)} (n = 1)") for side, ms in times.items())

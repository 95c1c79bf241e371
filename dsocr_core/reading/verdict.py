"""The verdict of two readings of a page: one rule, for results and for the rows of recorded runs.

Every finding is one difference in words, within tolerance or beyond it. None: identical. All within:
within tolerance. One beyond: differs. What cannot be compared has no findings, only the reason.

Inputs that are known to differ never break the tolerance and are never identical, even where the outputs
are: equal outputs of other inputs show that the inputs do not matter on this page, not that the backends are
the same. How a side ended does break it: a page that is cut off on one side differs, however little is
missing, and so does a page that is not identical where an end is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from dsocr_core.base.formatting import plural
from dsocr_core.reading.input_parity import GLOBAL_HASH, IMAGE, LIMIT, TILES_HASH, inputs_words
from dsocr_core.reading.parity_records import InputLine, Tolerance, Verdict
from dsocr_core.reading.records import FinishReason
from dsocr_core.reading.text_diff import Change, ChangeKind, named

RULE = 4
"""Number of this rule, by which a run says what judged it. Under 4 every change of a text that a page shows
is a difference; 2 and 3 allowed 2 % of the characters, but no change of a value."""

Ends = tuple[FinishReason | None, FinishReason | None]
_END_WORDS: dict[FinishReason | None, str] = {"eos": "with EOS", "length": "at the token limit"}


@dataclass(frozen=True)
class Finding:
    """One difference."""

    words: str
    within: bool
    """True where it is within tolerance."""


def verdict_of(findings: Iterable[Finding]) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict and its reasons, in the order of the findings."""
    findings = tuple(findings)
    verdict: Verdict = "identical"
    if findings:
        verdict = "within_tolerance" if all(finding.within for finding in findings) else "differs"
    return verdict, tuple(finding.words for finding in findings)


def other_page(sizes: Sequence[Sequence[tuple[int, int]]], lines: Iterable[InputLine]) -> str | None:
    """Why both sides did not read the same pages, whose sizes are given; None when nothing says so.

    Other image files are the same page where the pixels that went into the model are known to be equal.
    """
    if len(sizes[0]) != len(sizes[1]):
        return f"A read {plural(len(sizes[0]), 'page')}, B {len(sizes[1])}"
    for number, (size_a, size_b) in enumerate(zip(*sizes, strict=True), start=1):
        if size_a != size_b:
            which = "page sizes" if len(sizes[0]) == 1 else f"sizes of page {number}"
            return f"{which} differ: {size_a[0]} x {size_a[1]} and {size_b[0]} x {size_b[1]}"
    state = {line.name: line.state for line in lines}
    same_pixels = state.get(GLOBAL_HASH) == state.get(TILES_HASH) == "equal"
    return "the image files differ" if state.get(IMAGE) == "differs" and not same_pixels else None


def input_findings(lines: Iterable[InputLine], ends: Ends) -> list[Finding]:
    """Inputs that are known to differ. The token limit is among them where a side ended at it."""
    unequal = [
        line
        for line in lines
        if line.unequal or (line.name == LIMIT and line.state == "differs" and "length" in ends)
    ]
    return [Finding(inputs_words(unequal), within=True)] if unequal else []


def end_findings(ends: Ends, same_output: bool) -> list[Finding]:
    """Ends that are not alike. Where the outputs are the same, an end that is not known is no difference."""
    a, b = ends
    if a == b and a is not None:
        return []
    if None in ends:
        which = "the sides" if a == b else "A" if a is None else "B"
        return [] if same_output else [Finding(f"how {which} ended is not known", within=False)]
    return [Finding(f"A ended {_END_WORDS[a]}, B {_END_WORDS[b]}", within=False)]


def box_findings(
    boxes: tuple[int, int],
    alone: int,
    relabelled: int,
    shift: tuple[float, str] | None,
    tolerance: Tolerance,
) -> list[Finding]:
    """Boxes that are more or less, elsewhere, under another label, or moved.

    `alone` boxes have no partner, `relabelled` pairs another label. As many boxes elsewhere, or under other
    labels, are no match either. `shift` is the largest in percent of the page's side, and its words.
    """
    count_a, count_b = boxes
    limit = tolerance.boxes
    found = []
    if count_a != count_b:
        within = abs(count_a - count_b) <= limit
        words = f"{count_a} boxes and {count_b}" + _at_most(f"{limit} may differ", within)
        found.append(Finding(words, within))
    if relabelled or alone > abs(count_a - count_b):
        within = alone + relabelled <= limit
        words = " and ".join(
            part
            for part in (
                f"{plural(alone, 'box', 'boxes')} without a partner" if alone else "",
                f"{relabelled} under another label" if relabelled else "",
            )
            if part
        )
        found.append(Finding(words + _at_most(f"{limit} may differ", within), within))
    if shift:
        largest, words = shift
        within = largest <= tolerance.shift_percent
        if within and not words.startswith("all "):  # where all moved together, that is what to say
            words = f"boxes agree within {largest:.3g} %"
        found.append(Finding(words + _at_most(f"{tolerance.shift_percent:g} %", within), within))
    return found


def text_findings(
    changes: Sequence[Change], rates: tuple[float, float], beyond_limit: bool, tolerance: Tolerance
) -> list[Finding]:
    """Texts that differ: in words, in line ends of lists and headings, in cells of tables.

    `rates` are the character error rate, and the lower of it and that of the texts as a page shows them,
    which decides. `beyond_limit`: they differ, or may differ, where the rate was not measured.
    """
    found = []
    rate, deciding = rates
    limit = tolerance.character_error_rate
    within = deciding <= limit
    at_most = _at_most(_percent(limit), within) if limit else ""
    of_kind = {kind: [change for change in changes if change.kind == kind] for kind in get_args(ChangeKind)}
    if rate > 0 and not changes:
        found.append(Finding("the texts differ in blanks and spelling of markup alone", within=True))
    if words := of_kind["text"]:
        found.append(Finding(f"text differs by {_percent(rate)}: {named(words)}{at_most}", within))
    if lines := of_kind["lines"]:
        found.append(Finding(f"line ends of lists or headings differ: {len(lines)}{at_most}", within))
    if of_kind["table"]:
        found.append(Finding(f"a table has other rows or cells{at_most}", within))
    if beyond_limit:
        found.append(Finding("the texts differ beyond the characters that are measured", within=False))
    return found


def _at_most(limit: str, within: bool) -> str:
    return "" if within else f" (limit {limit})"


def _percent(rate: float) -> str:
    return f"{100 * rate:.3g} %" if rate < 1 else f"{100 * rate:.0f} %"
